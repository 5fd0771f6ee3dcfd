"""What is tried from inside a process: what applies is seen, what does not is told with why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from advisor.model import MeasurePlan
from tests.probe import program

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("loader.prefetch_factor=4", "needs workers"),
        ("loader.num_workers=1@elsewhere.py:3", "no DataLoader was built at elsewhere.py:3"),
        ("channels_last", "no 2-d convolution"),
        ("cudnn_benchmark", "runs on cpu"),
        ("non_blocking", "no tensor was copied"),
        ("set_to_none", "never asked to keep zeros"),
    ],
)
def test_what_does_not_apply_is_told_with_the_reason(tmp_path: Path, asked: str, why: str) -> None:
    """The program is measured as it is; nothing of it fails."""
    plan = MeasurePlan(measure_s=0.2, min_steps=5, whatif=asked)
    reading = program.python(tmp_path, "whatif_loop.py", "--linear", plan=plan).measured
    assert reading.whatif is not None
    assert reading.whatif.applied is False
    assert why in (reading.whatif.why or "")


@pytest.mark.parametrize(
    ("asked", "args", "effect", "value"),
    [
        ("loader.num_workers=1,loader.persistent_workers=1", (), "persistent_workers", True),
        ("autocast=bfloat16", ("--infer",), "dtype", "bfloat16"),
        ("set_to_none", ("--keep-zeros",), "set_to_none", True),
        ("channels_last", (), "channels_last", True),
        ("threads=3", (), "threads", 3),
    ],
)
def test_what_applies_is_seen_in_the_effects(
    tmp_path: Path, asked: str, args: tuple[str, ...], effect: str, value: object
) -> None:
    plan = MeasurePlan(measure_s=0.2, min_steps=5, whatif=asked)
    outcome = program.python(tmp_path, "whatif_loop.py", *args, plan=plan)
    assert outcome.exit_code == 0, outcome.stderr
    assert outcome.measured.whatif is not None
    assert outcome.measured.whatif.applied
    assert getattr(outcome.measured.effects, effect) == value


def test_compilation_is_kept_out_of_the_window(tmp_path: Path) -> None:
    """The window begins after the calls that compiled, and their cost is told."""
    plan = MeasurePlan(measure_s=0.3, min_steps=5, whatif="compile=eager")
    outcome = program.python(tmp_path, "whatif_loop.py", plan=plan)
    reading, (record,) = outcome.measured, outcome.records
    assert reading.effects.compiled is True
    assert reading.whatif is not None
    assert reading.whatif.cost_s
    assert record.first_step_time is not None
    assert reading.window_start - record.first_step_time > reading.whatif.cost_s
