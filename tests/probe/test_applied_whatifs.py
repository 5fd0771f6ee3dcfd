"""What is tried from inside a process: what applies is seen, what does not is told with why."""

import pytest

from advisor.model import MeasurePlan
from tests.probe import program


def test_what_does_not_apply_is_told_with_the_reason(tmp_path) -> None:
    """The program is measured as it is; nothing of it fails."""
    asked = "loader.prefetch_factor=4,channels_last,cudnn_benchmark"
    plan = MeasurePlan(measure_s=0.2, min_steps=5, whatif=asked)
    reading = program.python(tmp_path, "whatif_loop.py", "--linear", plan=plan).measured
    assert reading.whatif.applied is False
    reasons = (
        "prefetch_factor needs workers, and the loader has none",
        "the model has no 2-d convolution",
        "the model runs on cpu, where this setting does nothing",
    )
    assert sorted(reading.notes) == sorted(f"what-if {asked}: {reason}" for reason in reasons)
    assert reading.effects.workers == 0


@pytest.mark.parametrize(
    ("command", "asked", "effects"),
    [
        (
            ("ok_train.py",),
            "loader.num_workers=1,loader.prefetch_factor=3,loader.batch_size=8,autocast=bfloat16",
            {"workers": 1, "prefetch_factor": 3, "batch": 8, "dtype": "bfloat16"},
        ),
        (
            ("whatif_loop.py",),
            "loader.num_workers=1,loader.persistent_workers=1,channels_last,threads=3",
            {"persistent_workers": True, "channels_last": True, "threads": 3},
        ),
        (("whatif_loop.py", "--infer"), "autocast=bfloat16", {"dtype": "bfloat16"}),
    ],
    ids=["loader and autocast", "loader, layout and threads", "inference"],
)
def test_what_applies_is_seen_in_the_effects(tmp_path, command, asked, effects) -> None:
    """By the same observation as any other setting."""
    plan = MeasurePlan(measure_s=0.2, min_steps=5, whatif=asked)
    outcome = program.python(tmp_path, *command, plan=plan)
    assert outcome.exit_code == 0, outcome.stderr
    assert outcome.measured.whatif.applied, outcome.measured.whatif.why
    assert {name: getattr(outcome.measured.effects, name) for name in effects} == effects
