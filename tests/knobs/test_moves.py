"""A knob moves with everything linked to it, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from advisor import knobs
from advisor.knobs import catalogue, schedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.model import JsonScalar

Moved = dict[str, object]


@pytest.fixture
def move(document: Callable[..., object]) -> Callable[..., Moved | str]:
    """Path to new value of each change, or the reason of the refusal."""

    def build(text: str, path: str, value: JsonScalar) -> Moved | str:
        config = document(text)
        moved = knobs.move(config, knobs.find(config), path, value)  # type: ignore[arg-type]
        if isinstance(moved, knobs.InvalidChange):
            return moved.reason
        return {change.path: change.new for change in moved}

    return build


ACCUMULATING = "batch_size: 8\ngradient_accumulation_steps: 4\nlr: 0.1\n"


def test_the_product_of_batch_and_accumulation_is_kept(move: Callable[..., Moved | str]) -> None:
    assert move(ACCUMULATING, "batch_size", 16) == {
        "batch_size": 16,
        "gradient_accumulation_steps": 2,
    }
    assert move(ACCUMULATING, "gradient_accumulation_steps", 1) == {
        "batch_size": 32,
        "gradient_accumulation_steps": 1,
    }


def test_a_product_that_cannot_be_kept_is_refused(move: Callable[..., Moved | str]) -> None:
    assert "8 x 4" in str(move(ACCUMULATING, "batch_size", 12))
    frozen = "batch_size: 8\ngradient_accumulation_steps: 4 # do not modify\n"
    assert "do not modify" in str(move(frozen, "batch_size", 16))


DEEPSPEED = """\
train_batch_size: 64
train_micro_batch_size_per_gpu: 4
gradient_accumulation_steps: 2
zero_optimization: {stage: 2}
"""


def test_the_micro_batch_moves_and_the_global_one_stays(move: Callable[..., Moved | str]) -> None:
    assert move(DEEPSPEED, "train_micro_batch_size_per_gpu", 8) == {
        "train_micro_batch_size_per_gpu": 8,
        "gradient_accumulation_steps": 1,
    }
    assert "move train_micro_batch_size_per_gpu instead" in str(
        move(DEEPSPEED, "train_batch_size", 128)
    )


def test_a_derived_accumulation_needs_a_micro_batch_that_divides(
    move: Callable[..., Moved | str],
) -> None:
    text = "train: {global_batch_size: 512, micro_batch_size: 4}\n"
    assert move(text, "train.micro_batch_size", 16) == {"train.micro_batch_size": 16}
    assert "no multiple" in str(move(text, "train.micro_batch_size", 5))


def test_a_batch_without_accumulation_moves_alone(move: Callable[..., Moved | str]) -> None:
    assert move("batch_size: 8\nlr: 0.1\n", "batch_size", 16) == {"batch_size": 16}


def test_fp16_and_bf16_exclude_each_other(move: Callable[..., Moved | str]) -> None:
    text = "fp16: {enabled: true}\nbf16: {enabled: false}\n"
    assert move(text, "bf16.enabled", True) == {"bf16.enabled": True, "fp16.enabled": False}
    assert move(text, "fp16.enabled", False) == {"fp16.enabled": False}


LOADER = "data: {num_workers: 4, prefetch_factor: 2, persistent_workers: true}\n"


def test_no_workers_means_no_prefetch_and_no_persistence(move: Callable[..., Moved | str]) -> None:
    assert move(LOADER, "data.num_workers", 0) == {
        "data.num_workers": 0,
        "data.prefetch_factor": None,
        "data.persistent_workers": False,
    }
    assert move(LOADER, "data.num_workers", 8) == {"data.num_workers": 8}


def test_prefetch_and_persistence_are_refused_without_workers(
    move: Callable[..., Moved | str],
) -> None:
    text = LOADER.replace("num_workers: 4", "num_workers: 0").replace("true", "false")
    assert "data.num_workers is 0" in str(move(text, "data.persistent_workers", True))
    assert "data.num_workers is 0" in str(move(text, "data.prefetch_factor", 4))


def diffusion(shape: str, names: tuple[str, str] = ("linear_start", "linear_end")) -> str:
    start, end = names
    return f"test: {{schedule: {shape}, n_timestep: 1000, {start}: 0.0001, {end}: 0.02}}\n"


@pytest.mark.parametrize("names", [("linear_start", "linear_end"), ("beta_start", "beta_end")])
@pytest.mark.parametrize(("word", "shape"), [("linear", "line"), ("scaled_linear", "root-line")])
def test_steps_move_with_the_ends_of_their_schedule(
    word: str,
    shape: catalogue.Shape,
    names: tuple[str, str],
    move: Callable[..., Moved | str],
) -> None:
    moved = move(diffusion(word, names), "test.n_timestep", 100)
    assert isinstance(moved, dict)
    assert moved["test.n_timestep"] == 100
    ends = [float(str(moved[f"test.{name}"])) for name in names]
    kept = schedule.log_signal(ends[0], ends[1], 100, shape)
    assert kept == pytest.approx(schedule.log_signal(0.0001, 0.02, 1000, shape), rel=1e-3)


def test_a_schedule_without_ends_leaves_them(move: Callable[..., Moved | str]) -> None:
    assert move(diffusion("cosine"), "test.n_timestep", 100) == {"test.n_timestep": 100}


def test_a_schedule_that_is_not_understood_is_refused(move: Callable[..., Moved | str]) -> None:
    assert "'warmup10'" in str(move(diffusion("warmup10"), "test.n_timestep", 100))
    assert "cannot reach" in str(move(diffusion("linear"), "test.n_timestep", 2))


@pytest.mark.parametrize(
    ("comment", "kept", "broken"),
    [
        ("Needs to be divisible by the number of devices (e.g., if distributed)", 32, 24),
        ("should be a multiple of num_gpus", 48, 8),
        ("must be divisible by 8", 24, 20),
        ("multiple of 8 for tensor cores", 8, 12),
        ("multiple of 4 * world_size", 32, 24),
        ("divisible by 4 and by 6", 32, 24),
    ],
)
def test_a_comment_on_multiples_bounds_the_values_and_bans_none_of_them(
    comment: str, kept: int, broken: int, move: Callable[..., Moved | str]
) -> None:
    """Of what is no number here, the present value is a multiple, and so are its own."""
    text = f"batch_size: 16 # {comment}\n"
    assert move(text, "batch_size", kept) == {"batch_size": kept}
    assert f'"{comment}"' in str(move(text, "batch_size", broken))


def test_what_is_no_knob_or_not_editable_is_refused(move: Callable[..., Moved | str]) -> None:
    assert "no knob" in str(move("name: x\n", "name", 1))
    assert "must be 1" in str(move("batch_size: 1 # must be 1\n", "batch_size", 2))


def test_a_value_that_is_there_already_changes_nothing(move: Callable[..., Moved | str]) -> None:
    assert move("batch_size: 8\n", "batch_size", 8) == {}


DERIVED = "train_batch_size: 64\ngradient_accumulation_steps: 4\nzero_optimization: {stage: 2}\n"


def test_accumulation_moves_alone_where_the_program_derives_the_micro_batch(
    move: Callable[..., Moved | str],
) -> None:
    """The global batch is written down, the batch of one device is not: their product stays."""
    assert move(DERIVED, "gradient_accumulation_steps", 2) == {"gradient_accumulation_steps": 2}
    assert "no multiple" in str(move(DERIVED, "gradient_accumulation_steps", 3))
    assert "move gradient_accumulation_steps instead" in str(move(DERIVED, "train_batch_size", 8))


ALONE = "per_device_train_batch_size: 8\ngradient_accumulation_steps: 1\n"


def test_an_accumulation_of_one_batch_has_nothing_to_give(
    move: Callable[..., Moved | str],
) -> None:
    """A larger batch moves as it would without that key; what can be kept is."""
    path = "per_device_train_batch_size"
    assert move(ALONE, path, 12) == {path: 12}
    assert move(ALONE, path, 4) == {path: 4, "gradient_accumulation_steps": 2}


def test_a_global_batch_that_is_not_accumulated_moves_along(
    move: Callable[..., Moved | str],
) -> None:
    """Where it is accumulated, or may be, it stays."""
    path = "train.micro_batch_size"
    derived = "train: {global_batch_size: 4, micro_batch_size: 4}\n"
    assert move(derived, path, 8) == {path: 8, "train.global_batch_size": 8}
    assert "no multiple" in str(move(derived.replace("size: 4, m", "size: 8, m"), path, 16))
    assert move(DERIVED.replace("steps: 4", "steps: 1"), "train_batch_size", 128) == {
        "train_batch_size": 128
    }
