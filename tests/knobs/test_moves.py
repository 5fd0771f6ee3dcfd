"""A knob moves with everything linked to it, or not at all."""

import numpy as np
import pytest

from advisor import knobs
from advisor.knobs import catalogue
from advisor.model import Change, JsonScalar
from tests.knobs.conftest import document


def move(text: str, path: str, value: JsonScalar) -> dict[str, object] | str:
    """Path to new value of each change, or the reason of the refusal."""
    config = document(text)
    moved = knobs.move(config, knobs.find(config), path, value)
    if isinstance(moved, knobs.InvalidChange):
        return moved.reason
    return {change.path: change.new for change in moved}


ACCUM = "gradient_accumulation_steps"
MICRO = "train_micro_batch_size_per_gpu"
DEVICE = "per_device_train_batch_size"
ACCUMULATING = f"batch_size: 8\n{ACCUM}: 4\nlr: 0.1\n"
DEEPSPEED = f"""\
train_batch_size: 64
{MICRO}: 4
{ACCUM}: 2
zero_optimization: {{stage: 2}}
"""
MEGATRON = "train: {global_batch_size: 512, micro_batch_size: 4}\n"
# The global batch is written down, the batch of one device is not: their product stays.
DERIVED = f"train_batch_size: 64\n{ACCUM}: 4\nzero_optimization: {{stage: 2}}\n"
# An accumulation of one batch has nothing to give.
ALONE = f"{DEVICE}: 8\n{ACCUM}: 1\n"
# A global batch that is not accumulated moves along.
EQUAL = "train: {global_batch_size: 4, micro_batch_size: 4}\n"
HALVES = "fp16: {enabled: true}\nbf16: {enabled: false}\n"
LOADER = "data: {num_workers: 4, prefetch_factor: 2, persistent_workers: true, in_order: true}\n"


@pytest.mark.parametrize(
    ("text", "path", "value", "along"),
    [
        (ACCUMULATING, "batch_size", 16, {ACCUM: 2}),
        (ACCUMULATING, ACCUM, 1, {"batch_size": 32}),
        (DEEPSPEED, MICRO, 8, {ACCUM: 1}),
        (MEGATRON, "train.micro_batch_size", 16, {}),
        (DERIVED, ACCUM, 2, {}),
        (DERIVED.replace("steps: 4", "steps: 1"), "train_batch_size", 128, {}),
        (ALONE, DEVICE, 12, {}),
        (ALONE, DEVICE, 4, {ACCUM: 2}),
        (EQUAL, "train.micro_batch_size", 8, {"train.global_batch_size": 8}),
        ("batch_size: 8\nlr: 0.1\n", "batch_size", 16, {}),
        (HALVES, "bf16.enabled", True, {"fp16.enabled": False}),
        (HALVES, "fp16.enabled", False, {}),
        (LOADER, "data.num_workers", 8, {}),
        (LOADER, "data.num_workers", 0,
         {"data.prefetch_factor": None, "data.persistent_workers": False}),
    ],
)  # fmt: skip
def test_what_is_linked_moves_along(text, path, value, along) -> None:
    assert move(text, path, value) == {path: value, **along}


IDLE = LOADER.replace("num_workers: 4", "num_workers: 0").replace("true", "false")


@pytest.mark.parametrize(
    ("text", "path", "value", "why"),
    [
        (ACCUMULATING, "batch_size", 12, "8 x 4"),
        (ACCUMULATING.replace("steps: 4", "steps: 4 # do not modify"), "batch_size", 16,
         "do not modify"),
        (DEEPSPEED, "train_batch_size", 128, f"move {MICRO} instead"),
        (MEGATRON, "train.micro_batch_size", 5, "no multiple"),
        (DERIVED, ACCUM, 3, "no multiple"),
        (DERIVED, "train_batch_size", 8, f"move {ACCUM} instead"),
        (EQUAL.replace("size: 4, m", "size: 8, m"), "train.micro_batch_size", 16, "no multiple"),
        (IDLE, "data.persistent_workers", True, "data.num_workers is 0"),
        (IDLE, "data.prefetch_factor", 4, "data.num_workers is 0"),
        ("name: x\n", "name", 1, "no knob"),
        ("batch_size: 1 # must be 1\n", "batch_size", 2, "must be 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_refused(text, path, value, why) -> None:
    assert why in str(move(text, path, value))


def diffusion(shape: str, names: tuple[str, str] = ("linear_start", "linear_end")) -> str:
    start, end = names
    return f"test: {{schedule: {shape}, n_timestep: 1000, {start}: 0.0001, {end}: 0.02}}\n"


def log_signal(start: float, end: float, steps: int, shape: str) -> float:
    """Logarithm of what is left of a signal after all steps."""
    power = 2 if shape == "scaled_linear" else 1
    return np.log1p(-(np.linspace(start ** (1 / power), end ** (1 / power), steps) ** power)).sum()


@pytest.mark.parametrize("names", [("linear_start", "linear_end"), ("beta_start", "beta_end")])
@pytest.mark.parametrize("shape", ["linear", "scaled_linear"])
@pytest.mark.parametrize("steps", [1500, 100])
def test_steps_move_with_the_ends_of_their_schedule(shape, names, steps) -> None:
    """They keep the terminal signal and their ratio, in numbers of at most six digits."""
    moved = move(diffusion(shape, names), "test.n_timestep", steps)
    assert isinstance(moved, dict)
    assert moved["test.n_timestep"] == steps
    start, end = ends = [float(str(moved[f"test.{name}"])) for name in names]
    kept = log_signal(0.0001, 0.02, 1000, shape)
    assert log_signal(start, end, steps, shape) == pytest.approx(kept, rel=1e-3)
    assert end / start == pytest.approx(200, rel=1e-4)
    assert [float(f"{each:.6g}") for each in ends] == ends


def test_a_schedule_that_cannot_be_rescaled_is_left_or_refused() -> None:
    assert move(diffusion("cosine"), "test.n_timestep", 100) == {"test.n_timestep": 100}
    assert "'warmup10'" in str(move(diffusion("warmup10"), "test.n_timestep", 100))
    assert "even at a last noise rate" in str(move(diffusion("linear"), "test.n_timestep", 2))


def test_a_comment_on_multiples_bans_no_value() -> None:
    """Values are doubled."""
    text = "batch_size: 16 # Needs to be divisible by the number of devices\n"
    assert move(text, "batch_size", 32) == {"batch_size": 32}


@pytest.mark.parametrize(
    ("start", "end", "steps", "why"),
    [
        (1e-4, 0.09, 1000, r"leave a signal of 6\.6e-21\. 3 leave "),
        (0.1, 1.5, 10, "outside"),
        (0.0, 0.0, 10, "no noise"),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused_with_its_numbers(start, end, steps, why) -> None:
    with pytest.raises(ValueError, match=why):
        catalogue.rescaled_schedule(start, end, steps, 3)


def test_settings_of_one_kind_have_labels_of_their_own() -> None:
    """A value that the command line overrides is tried beside that of its option."""
    labels = [
        Change(document="", path=path, kind="batch_size", knob_class="free", old=1, new=8).label
        for path in ("pipeline.batch_size", "--batch-size", "eval_batch_size")
    ]
    assert labels == ["batch 8", "--batch-size 8", "eval_batch_size 8"]
