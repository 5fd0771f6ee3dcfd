"""What is tried from inside a process: what applies is seen, what does not is told with why."""

from collections.abc import Mapping

import pytest

from advisor.model import JsonScalar, MeasurePlan, Override
from tests.probe import program
from tests.runs import of_steady_host


def planned(asked: Mapping[str, JsonScalar]) -> MeasurePlan:
    """A short window with these overrides."""
    overrides = tuple(Override(knob=knob, value=value) for knob, value in asked.items())
    return MeasurePlan(measure_s=0.2, min_steps=5, overrides=overrides)


def test_what_does_not_apply_is_told_with_the_reason(tmp_path) -> None:
    """The program is measured as it is; nothing of it fails, and what applies is applied."""
    asked = {"prefetch_factor": 4, "channels_last": True, "cudnn_benchmark": True, "threads": 1}
    reading = program.python(tmp_path, "whatif_loop.py", "--linear", plan=planned(asked)).measured
    reasons = {
        "prefetch_factor": "prefetch_factor needs workers, and the loader has none",
        "channels_last": "the model has no 2-d convolution",
        "cudnn_benchmark": "the model runs on cpu, where this setting does nothing",
        "threads": None,
    }
    assert {override.knob: override.why for override in reading.overrides} == reasons
    assert [each.knob for each in reading.overrides if each.applied] == ["threads"]
    told = {f"override of {knob}: {reason}" for knob, reason in reasons.items() if reason}
    assert set(of_steady_host(reading.notes)) == told
    assert reading.effects.workers == 0


@pytest.mark.parametrize(
    ("command", "asked", "effects"),
    [
        (
            ("ok_train.py",),
            {"prefetch_factor": 3, "num_workers": 1, "batch_size": 8, "autocast": "bfloat16"},
            {"workers": 1, "prefetch_factor": 3, "batch": 8, "dtype": "bfloat16"},
        ),
        (
            ("whatif_loop.py",),
            {"num_workers": 1, "persistent_workers": True, "channels_last": True, "threads": 3},
            {"persistent_workers": True, "channels_last": True, "threads": 3},
        ),
        (("whatif_loop.py", "--infer"), {"autocast": "bfloat16"}, {"dtype": "bfloat16"}),
    ],
    ids=["loader and autocast", "loader, layout and threads", "inference"],
)
def test_what_applies_is_seen_in_the_effects(tmp_path, command, asked, effects) -> None:
    """By the same observation as any other setting."""
    outcome = program.python(tmp_path, *command, plan=planned(asked))
    assert outcome.exit_code == 0, outcome.stderr
    assert all(override.applied for override in outcome.measured.overrides), (
        outcome.measured.overrides
    )
    assert {name: getattr(outcome.measured.effects, name) for name in effects} == effects
