"""Whole calls of `optimize` on trainings whose batch moves something: what is written, and told."""

import json
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest

from tests import warm

PROGRAMS = Path(__file__).resolve().parent / "fixtures" / "programs"
CONFIG = """\
how: {how}
batch_size: 2
gradient_accumulation_steps: 16
max_steps: 50000
warmup_steps: 640
"""
SETTINGS = """\
[workload.training]
config = "config.yaml"
command = "{python} work_config.py {{config}}"
accept = {accept}
"""

pytestmark = [pytest.mark.slow, pytest.mark.nightly]
pytest.importorskip("torch")


class Answer(NamedTuple):
    report: dict[str, Any]
    page: str
    """report.md"""
    written: bool


@cache
def tuned(server: warm.Server, how: str, *accept: str) -> Answer:
    """Tune the training of that kind, with these differences accepted."""
    with TemporaryDirectory(prefix="gpu-advisor-test-", ignore_cleanup_errors=True) as folder:
        return tuned_in(Path(folder), server, how, accept)


def tuned_in(folder: Path, server: warm.Server, how: str, accept: Sequence[str]) -> Answer:
    (folder / ".git").mkdir()
    (folder / "work_config.py").write_bytes((PROGRAMS / "work_config.py").read_bytes())
    before = CONFIG.format(how=how)
    (folder / "config.yaml").write_text(before)
    settings = SETTINGS.format(python=sys.executable, accept=list(accept))
    (folder / "gpu-advisor.toml").write_text(settings)
    done = server.call(
        *("optimize", "config.yaml", "--window", "1s", "--json", "--budget", "180s"), cwd=folder
    )
    assert done.returncode in {0, 5}, done.stderr
    report = json.loads((folder / "report.json").read_text())
    written = (folder / "config.yaml").read_text() != before
    assert written is (report["verdict"] == "improved")
    return Answer(report, (folder / "report.md").read_text(), written)


def reason(found: Answer) -> str:
    """Why the batch stayed."""
    (batch,) = (each for each in found.report["decisions"] if each["path"] == "batch_size")
    return str(batch["reason"])


def test_a_learning_rate_that_follows_the_batch_is_named_and_nothing_is_written(
    gpu_advisor,
) -> None:
    """With its values, what else moves along, and the key that accepts it."""
    found = tuned(gpu_advisor, "rate")
    assert not found.written
    assert "learning rate" in found.page
    assert "where it was 0.00078" in reason(found)
    assert "`max_steps` (config.yaml, line 4) 50000 to " in reason(found)
    assert "`warmup_steps` (config.yaml, line 5) 640 to " in reason(found)
    assert 'accept = ["learning-rate"]' in reason(found)


def test_an_accumulation_that_the_program_clamps_is_told_by_the_samples_of_an_update(
    gpu_advisor,
) -> None:
    """The config's own numbers would say as many samples as before."""
    found = tuned(gpu_advisor, "clamped")
    assert not found.written
    assert "where it was 32" in reason(found)
    assert 'accept = ["update-samples"]' in reason(found)


def test_a_run_whose_length_counts_batches_is_named_with_its_line(gpu_advisor) -> None:
    found = tuned(gpu_advisor, "counters")
    assert not found.written
    assert "`max_steps` (config.yaml, line 4) counts batches" in reason(found)


@pytest.mark.parametrize(
    ("how", "accept"),
    [("plain", ()), ("rate", ("learning-rate",)), ("counters", ("counters",))],
)
def test_an_update_that_stays_or_a_difference_that_is_accepted_is_written(
    gpu_advisor, how, accept
) -> None:
    """Batch and accumulation move together: an update has as many samples."""
    found = tuned(gpu_advisor, how, *accept)
    values = {each["path"]: each["new"] for each in found.report["changes"]}
    assert values["batch_size"] * values["gradient_accumulation_steps"] == 32
    assert found.report["observed"]["updates"].startswith("32 samples an update")
