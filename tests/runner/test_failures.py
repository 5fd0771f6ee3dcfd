"""The failure matrix: real programs that fail in one way each are told apart.

`.ci/nightly` runs each twenty times.
"""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING

import pytest

from advisor.errors import FAILURE_EXIT_CODES
from advisor.model import Candidate, Change, TrialFile
from tests.runner.conftest import MakeTrial, failed, program
from tests.runner.failures import CASES, abandon, attempt

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", CASES)
def test_each_failure_is_told_apart(name: str) -> None:
    """Kind, evidence and next step are right; no process and no file is left behind."""
    assert attempt(CASES[name]).problems == ()


def test_every_kind_has_a_program() -> None:
    assert {case.kind for case in CASES.values()} == FAILURE_EXIT_CODES.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_no_failure_leaves_anything_when_the_parent_is_killed(name: str) -> None:
    """kill -9 at a random moment, from before the start to after the failure."""
    after_s = random.Random(os.environ.get("SEED", "") + name).uniform(0.05, 4.0)
    assert abandon(CASES[name], after_s).problems == ()


def test_a_config_that_is_no_json_is_a_rejected_config(make_trial: MakeTrial, work: Path) -> None:
    """The original itself is read; the parser's message is the evidence."""
    (work / "config.json").write_text('{"num_workers": }')
    outcome = failed(make_trial(*program("fail_config_rejected", "-c", "config.json")))
    assert outcome.kind == "config-rejected"
    assert "JSONDecodeError" in outcome.evidence


@pytest.mark.parametrize("content", [{"num_workers": 12}, {}])
def test_an_error_that_names_a_changed_key_is_a_rejected_config(
    content: dict[str, int], make_trial: MakeTrial, work: Path
) -> None:
    """ValueError and KeyError before the first step, about what the candidate changed."""
    config = work / "config.json"
    config.write_text('{"num_workers": 4}')
    change = Change(
        document="config.json", path="num_workers", kind="num_workers", knob_class="free",
        old=4, new=12,
    )  # fmt: skip
    trial = make_trial(
        *program("fail_config_rejected", "--config=config.json"),
        candidate=Candidate(changes=(change,)),
        files=(TrialFile(original=str(config), content=json.dumps(content).encode()),),
    )
    outcome = failed(trial)
    assert outcome.kind == "config-rejected"
    assert "num_workers" in outcome.evidence
    assert [path.name for path in work.iterdir()] == ["config.json"]
