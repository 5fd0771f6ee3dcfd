"""Commands whose Pythons the probe is kept out of."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from advisor.model import MeasurePlan
from advisor.runner import monitor
from tests.runner.conftest import failed

if TYPE_CHECKING:
    from tests.runner.conftest import MakeTrial

SLEEPS = "import time; time.sleep(60)"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("env", "-i", sys.executable, "-c", SLEEPS), "was cleared"),
        (("bash", "-c", f"{sys.executable} -E -c '{SLEEPS}'; true"), "-E"),
        ((sys.executable, "-I", "-c", SLEEPS), "-I keeps it out"),
    ],
)
def test_where_it_cannot_follow_it_says_why(
    make_trial: MakeTrial, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], why: str
) -> None:
    """Long before the limit of its start."""
    monkeypatch.setattr(monitor, "LOST_S", 1.0)
    outcome = failed(make_trial(*command, start_limit_s=50.0, plan=MeasurePlan()))
    assert outcome.kind == "probe-not-loaded"
    assert why in outcome.evidence
    assert outcome.wall_s < 20
