"""Limits of a trial: what was asked for wins, the rest follows from it."""

import re

import pytest

from advisor import __main__ as main
from advisor.model import MeasurePlan, Override
from advisor.runner import resources
from advisor.runner.classify import CONFIG, DEVICE, NEXT_STEPS, OUT_OF_MEMORY
from advisor.runner.resources import ProcessLimits
from advisor.settings import Defaults, Workload

PLAN = MeasurePlan()


def compiling(how: str | bool) -> MeasurePlan:
    return MeasurePlan(overrides=(Override(knob="compile", value=how),))


def test_the_total_follows_from_the_others_and_from_the_plan() -> None:
    """It covers the start, a slow window, the parts and a silence."""
    assert ProcessLimits().of(PLAN) == (300.0, 60.0, 600.0)
    parts = MeasurePlan(ceilings_workers=(0, 2), ceilings_s=2.0)
    longer = {
        ProcessLimits(start_s=1000.0).of(PLAN)[2],
        ProcessLimits(hang_s=100.0).of(PLAN)[2],
        ProcessLimits().of(parts)[2],
        ProcessLimits().of(MeasurePlan(measure_s=60.0))[2],
        ProcessLimits().of(MeasurePlan(mode="whole"))[2],
    }
    assert min(longer) > 600.0
    assert ProcessLimits(start_s=900.0, run_s=50.0).of(PLAN) == (900.0, 60.0, 50.0)


@pytest.mark.parametrize(
    ("given", "plan", "start_s", "hang_s"),
    [
        (ProcessLimits(startup_s=240.0), PLAN, 1200.0, 240.0),
        (ProcessLimits(startup_s=2.0), PLAN, 300.0, 60.0),
        (ProcessLimits(startup_s=240.0, start_s=30.0, hang_s=20.0), PLAN, 30.0, 20.0),
        (ProcessLimits(start_s=500.0), compiling(True), 500.0, 500.0),
        (ProcessLimits(start_s=500.0), compiling("reduce-overhead"), 500.0, 500.0),
    ],
)
def test_limits_follow_the_start_of_the_original_unless_given(given, plan, start_s, hang_s) -> None:
    """A compilation may be silent as long as a start."""
    assert given.of(plan)[:2] == (start_s, hang_s)


def test_a_workload_wins_over_the_defaults() -> None:
    defaults = Defaults.model_validate({"start-limit": "10m", "hang-limit": "2m", "run-limit": 9})
    entry = Workload.model_validate({"command": "x", "hang-limit": "90"})
    assert resources.of_settings(entry, defaults) == ProcessLimits(
        start_s=600.0, hang_s=90.0, run_s=9.0
    )
    assert resources.of_settings(Workload(command="x"), Defaults()) == ProcessLimits()


def test_every_flag_and_key_that_a_failure_names_exists() -> None:
    """Advice that cannot be followed is none."""
    known = {word for a in main.build_parser("optimize")._actions for word in a.option_strings}
    own = (each.next_step or "" for each in (*OUT_OF_MEMORY, DEVICE, CONFIG))
    advice = " ".join((*NEXT_STEPS.values(), *own)).replace("docker run --shm-size=8g", "")
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", advice)) <= known
    keys = {field.alias or name for name, field in Defaults.model_fields.items()}
    keys |= {field.alias or name for name, field in Workload.model_fields.items()}
    named = set(re.findall(r"\b(?:\w+-limit|unit-regex)\b", advice))
    assert named <= {key.replace("_", "-") for key in keys}
