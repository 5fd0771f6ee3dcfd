"""What the probe tells of a program on a GPU, and what it must not do to it: on simulated cards."""

from pathlib import Path

import pytest

from advisor.model import MeasurePlan, Override
from tests.gpu.conftest import LARGE, SMALL
from tests.probe.program import PROBE
from tests.simulated_gpu import Card

TRAIN = ("--train", "--loader", "--kernel", "5")
SHORT = MeasurePlan(measure_s=0.4, min_steps=5)


@pytest.mark.parametrize("way", ["old", "new"])
def test_either_way_to_ask_for_tf32_is_read(way, on_cards) -> None:
    """Since torch 2.9 there are two, and to read the older after the newer was used raises."""
    effects = on_cards(*TRAIN, "--tf32", way, plan=SHORT).outcome.measured.effects
    assert effects.tf32 is True
    assert effects.device == "cuda:0"
    assert effects.dtype == "float32"
    assert effects.cudnn_benchmark is None, "there is no convolution"


def test_a_tf32_what_if_leaves_both_ways_readable(on_cards) -> None:
    """It applies and is seen, also by a program that reads the older one in each step."""
    plan = MeasurePlan(
        measure_s=0.4, min_steps=5, overrides=(Override(knob="tf32"), Override(knob="fused"))
    )
    reading = on_cards(*TRAIN, "--adam", "--reads-tf32", plan=plan).outcome.measured
    assert [(each.applied, each.why) for each in reading.overrides] == [(True, None)] * 2
    assert reading.effects.tf32 is True
    assert reading.effects.fused is True


def test_the_card_that_the_model_is_on_is_told(on_cards) -> None:
    """By UUID, with its memory; its stream is timed, and no context is opened on another card."""
    found = on_cards(*TRAIN, "--device", "cuda:1", cards=(LARGE, SMALL), plan=SHORT)
    (card,) = found.outcome.measured.cards
    assert card.index == 1
    assert card.name == SMALL.name
    assert card.uuid == SMALL.uuid.removeprefix("GPU-")
    assert card.total_gib == 24
    assert found.truth.contexts == [1]
    compute = found.outcome.measured.shares.compute
    assert compute > found.truth.busy_share(1, *found.window) / 2 > 0, "the other one did nothing"


def test_a_memory_cap_leaves_the_current_card_as_it_was(on_cards) -> None:
    """Torch makes each card that it caps the current one."""
    plan = MeasurePlan(mode="whole", memory_cap_gib=8.0)
    found = on_cards("--train", "--steps", "4", "--keep-current", cards=(LARGE, SMALL), plan=plan)
    assert "current 0" in found.outcome.stdout


def test_the_driver_is_not_asked_before_the_program_uses_it(on_cards) -> None:
    """A process that asked cannot be forked any more."""
    found = on_cards(
        "--train", "--loader", "--unused", "--steps", "12", plan=MeasurePlan(mode="whole")
    )
    assert found.truth.asked_early == 0
    assert found.outcome.measured.cards == ()


def test_a_replay_of_a_graph_is_a_step_and_nothing_of_ours_is_captured(on_cards) -> None:
    """Not the eager steps before the capture. No event and no wait, which it does not survive."""
    found = on_cards("--train", "--kernel", "8", "--graph", plan=SHORT)
    reading, truth = found.outcome.measured, found.truth
    assert reading.units_per_s == pytest.approx(4 / 0.008, rel=0.1)
    assert reading.step_kind == "optimizer step", "none is captured"
    assert len(reading.losses) == 4, "none is captured"
    assert truth.captured
    assert truth.spoilt == []
    assert [f for f in truth.captured if PROBE in Path(f).parents] == []


def test_a_loss_that_is_kept_is_a_copy_and_skipped_updates_are_told(on_cards) -> None:
    """A CUDA graph writes each loss to the same place; skipped steps were paid for."""
    found = on_cards(*TRAIN, "--reuse", "--scaler", "5", plan=SHORT).outcome.measured
    assert found.losses
    assert 99.0 not in found.losses
    assert any("GradScaler skipped" in note for note in found.notes)


def test_reserved_memory_is_told_beside_what_is_allocated(on_cards) -> None:
    """The card must give what the allocator holds."""
    card = Card(memory_scale=4097.0)  # no number of bytes fills whole segments
    reading = on_cards(*TRAIN, cards=(card,), plan=SHORT).outcome.measured
    assert 0 < reading.peak_mem_gib < reading.peak_device_gib


def test_a_program_that_only_asked_about_its_card_has_the_hosts_memory(on_cards) -> None:
    """Torch tells 0 bytes of a card that was asked and holds nothing."""
    words = ("--train", "--loader", "--device", "cpu", "--keep-current", "--steps", "12")
    found = on_cards(*words, plan=MeasurePlan(mode="whole"))
    assert "current 0" in found.outcome.stdout
    reading = found.outcome.measured
    assert reading.peak_device_gib is None
    assert reading.peak_mem_gib == reading.peak_host_gib


def test_a_counted_step_is_timed_where_the_card_ends_it(on_cards) -> None:
    """The host runs ahead by more each step. An event after each forward would hide the step's."""
    found = on_cards("--train", "--host", "12", "--kernel", "16", plan=MeasurePlan(measure_s=0.4))
    done = [end + 0.001 for start, end in found.truth.busy[0] if end - start > 0.01]
    inside = [end for end in done if found.window[0] < end <= found.window[1]]
    assert found.outcome.measured.units == 4 * len(inside), "and not what the host queued"


def test_numbers_of_a_sampler_are_read_without_a_wait(on_cards) -> None:
    """Timesteps on the card tell items apart. The host still runs ahead, and no line is blamed."""
    plan = MeasurePlan(measure_s=0.6, min_steps=8)
    found = on_cards("--sampler", "20", "--kernel", "6", "--host", "5", plan=plan)
    reading = found.outcome.measured
    assert reading.effects.forwards_per_unit == 20
    assert reading.syncs == ()
    assert found.truth.busy_share(0, *found.window) > 0.9


@pytest.mark.parametrize(
    ("words", "ahead"), [("--pinned", True), ("", False)], ids=["pinned", "pageable"]
)
def test_copies_of_pinned_memory_are_the_devices_and_no_compute(words, ahead, on_cards) -> None:
    """From pageable memory the host waits for the copy, whatever it asked for."""
    args = ("--copied", "512", "--non-blocking", "--host", "4", "--kernel", "3", *words.split())
    found = on_cards(*args, cards=(Card(copy_us_per_mb=12_000.0),), plan=MeasurePlan(measure_s=0.5))
    shares, window = found.outcome.measured.shares, found.window
    copied = found.truth.copied_share(0, *window)
    compute = found.truth.busy_share(0, *window) - copied
    assert shares.compute == pytest.approx(compute, abs=0.05)
    assert shares.host_to_device > copied - 0.05, "and the time that the host loses by a wait"
    assert (found.truth.busy_share(0, *window) > 0.95) is ahead


def test_copies_on_a_stream_of_their_own_take_nothing_from_compute(on_cards) -> None:
    """A prefetcher copies the next batch while the model computes."""
    args = ("--copied", "512", "--pinned", "--side-stream", "--kernel", "10", "--item")
    plan = MeasurePlan(measure_s=0.5, min_steps=8)
    found = on_cards(*args, cards=(Card(copy_us_per_mb=12_000.0),), plan=plan)
    shares = found.outcome.measured.shares
    assert found.truth.copied_share(0, *found.window) > 0.3
    assert shares.compute == pytest.approx(10 / 10.1, abs=0.1)


@pytest.mark.parametrize(
    ("words", "asked", "busy"),
    [
        ("--loader --pins --copied 512 --host 4 --kernel 3", (), (0.6, 0.75)),
        ("--loader --pins --copied 512 --host 4 --kernel 3", ("non_blocking",), (0.95, 1.0)),
        ("--loader --copied 512 --host 4 --kernel 3", ("non_blocking",), (0.6, 0.75)),
    ],
    ids=["blocking", "pinned", "pageable"],
)
def test_a_non_blocking_copy_needs_pinned_memory(words, asked, busy, on_cards) -> None:
    """A loader pins where torch has an accelerator; without it the override changes nothing."""
    overrides = tuple(Override(knob=each) for each in asked)
    plan = MeasurePlan(measure_s=0.5, min_steps=8, overrides=overrides)
    found = on_cards(*words.split(), cards=(Card(copy_us_per_mb=12_000.0),), plan=plan)
    assert found.outcome.measured.effects.pin_memory is ("--pins" in words)
    low, high = busy
    assert low <= found.truth.busy_share(0, *found.window) <= high


def test_cudnn_searches_where_the_flag_stood_before_the_first_convolution(on_cards) -> None:
    """Its cache of algorithms is looked up before the flag: a later switch does nothing."""
    plain = on_cards("--convolution", "--train", plan=MeasurePlan(measure_s=0.4))
    plan = MeasurePlan(measure_s=0.4, overrides=(Override(knob="cudnn_benchmark"),))
    switched = on_cards("--convolution", "--train", plan=plan)
    rates = [each.outcome.measured.units_per_s for each in (plain, switched)]
    assert rates == pytest.approx([4 / 0.006, 4 / 0.004], rel=0.1)
    assert switched.outcome.measured.effects.cudnn_benchmark is True
