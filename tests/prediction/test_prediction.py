"""Prediction: rules of the allocator, other batches, time of a step."""

from dataclasses import replace

import pytest

from advisor.errors import PredictionError
from advisor.machine import profiles
from advisor.prediction.allocator import MIB, Allocator, Peak, fits, peak_of
from advisor.prediction.estimate import (
    STEADY_CLOCK,
    Traced,
    estimate_of,
    precisions,
    step_time,
)
from advisor.prediction.trace import (
    MATRIX,
    OTHER,
    Operation,
    Trace,
    at_batch,
    parse,
)
from advisor.probe.op_trace import CONVOLUTION
from tests.runs import a_run

CARD = profiles.by_name("rtx-3090")


def trace(*events: float, batch: float = 1, held: tuple[float, ...] = ()) -> Trace:
    op = Operation(MATRIX, "float32", 1e6 * batch, 1e3 * batch, "mm")
    return Trace(batch=batch, ops=(op,), held=held, events=events)


@pytest.mark.parametrize(
    ("sizes", "allocated", "reserved"),
    [
        ((1,), 512, 2 * MIB),
        ((513, 512), 1536, 2 * MIB),  # split off the same small segment
        ((MIB, MIB, 1), 2 * MIB + 512, 4 * MIB),
        ((MIB + 1, 5 * MIB), 6 * MIB + 512, 20 * MIB),
        ((10 * MIB,), 10 * MIB, 10 * MIB),
        ((11 * MIB + 1,), 12 * MIB, 12 * MIB),  # a rest of less than 1 MiB stays unsplit
    ],
)
def test_sizes_are_rounded_and_taken_from_segments(sizes, allocated, reserved) -> None:
    allocator = Allocator()
    for size in sizes:
        allocator.take(size)
    assert allocator.reserved == reserved
    assert allocator.allocated == allocated


def test_free_neighbours_are_merged() -> None:
    allocator = Allocator()
    blocks = [allocator.take(6 * MIB) for _ in range(3)]
    assert allocator.reserved == 20 * MIB
    for number in (0, 2, 1):
        allocator.give(blocks[number])
    allocator.take(20 * MIB)
    assert allocator.peak == Peak(20 * MIB, 20 * MIB)


def test_a_full_card_gets_back_segments_that_hold_nothing() -> None:
    """One with a used block stays, however much of it is free."""
    whole, split = (11 * MIB, -1), (6 * MIB, 6 * MIB, -1)
    for first, extra in ((whole, 0), (split, 20 * MIB)):
        step = trace(*first, 30 * MIB)
        assert fits(step, 30 * MIB + extra)
        assert not fits(step, 29 * MIB + extra)


def test_the_peak_counts_what_is_alive_together() -> None:
    one_by_one = trace(MIB, -1, MIB, -2, held=(MIB,))
    together = trace(MIB, MIB, -1, -2, held=(MIB,))
    assert peak_of(one_by_one).allocated == 2 * MIB
    assert peak_of(together).allocated == 3 * MIB


def test_other_batches_are_linear() -> None:
    small, large = trace(110, -1, batch=1, held=(7,)), trace(120, -1, batch=2, held=(7,))
    found = at_batch(small, large, 10)
    assert found.held == (7,)
    assert found.events == (200, -1)
    assert found.ops == trace(batch=10).ops


def test_another_batch_is_refused_where_the_operations_differ() -> None:
    small, large = trace(1, -1, batch=1), trace(2, -1, batch=2)
    bmm = large.ops[0]._replace(name="bmm")
    for other in (replace(large, ops=(bmm,)), replace(large, events=(2, 2)), small):
        with pytest.raises(PredictionError):
            at_batch(small, other, 4)


@pytest.mark.parametrize(
    ("op", "times", "bound"),
    [
        (Operation(MATRIX, "float16", 1e12, 1e6, "mm"), 1, "compute"),
        (Operation(OTHER, "float16", 0, 1e9, "add"), 1, "bandwidth"),
        (Operation(OTHER, "float16", 0, 8, "add"), 1000, "launches"),
    ],
)
def test_the_limit_of_a_step_is_named(op, times, bound) -> None:
    assert step_time(replace(trace(), ops=(op,) * times), CARD).bound == bound


def test_a_trace_that_names_no_class_of_operations_is_not_read() -> None:
    """The program may write what it likes."""
    raw = {"ops": [[9, "float32", 1.0, 1, "x"]], "held": [], "events": []}
    with pytest.raises(ValueError, match="ops"):
        parse(raw, 1)


def test_the_order_of_what_is_freed_together_says_nothing() -> None:
    raw = {"ops": [], "held": []}
    one, other = ({**raw, "events": [8, 8, *frees, 8]} for frees in ((-1, -2), (-2, -1)))
    assert parse(one, 1) == parse(other, 1)


@pytest.mark.parametrize(
    ("card", "dtype", "share"),
    [
        ("rtx-3090", "bfloat16", 0.9),
        ("a100-80", "bfloat16", 0.9 * STEADY_CLOCK),
        ("a100-80", "float32", 0.9),
        ("v100-pcie-32", "bfloat16", 0.9),  # it has none, and computes in float32
    ],
)
def test_tensor_cores_of_other_cards_than_geforce_fall_below_their_datasheet(
    card, dtype, share
) -> None:
    """Their clocks fall under a long load; those of a GeForce lie above the datasheet's."""
    profile = profiles.by_name(card)
    op = Operation(MATRIX, dtype, 1e13, 1e6, "mm")
    peak = 1e12 * (profile.tflops(dtype) or profile.fp32_tflops)
    took = step_time(replace(trace(), ops=(op,)), profile)
    assert took.seconds == pytest.approx(1e13 / (share * peak))


def measured_here(*dtypes: str) -> Traced:
    """A program timed on the card, a third slower than its trace says, of such products."""
    kinds = (CONVOLUTION, MATRIX)
    ops = tuple(
        Operation(kind, dtype, 1e11, 1e6, "op") for kind, dtype in zip(kinds, dtypes, strict=False)
    )
    step = replace(trace(batch=8), ops=ops)
    ms = 1500 * step_time(step, H100).seconds
    return Traced(run=a_run(step_ms=ms, units_per_s=8000 / ms), step=step, measured_on=H100)


H100 = profiles.by_name("h100-sxm")


@pytest.mark.parametrize(
    ("dtypes", "names"),
    [
        (("float32",), ["float32", "tf32", "bfloat16"]),
        (("tf32",), ["tf32", "bfloat16"]),
        (("tf32", "float32"), ["float32 and tf32", "tf32", "bfloat16"]),
    ],
)
def test_no_figure_of_a_page_contradicts_another(dtypes, names) -> None:
    """The same card, batch and precision have one rate, and it is the one that was measured."""
    found, half = measured_here(*dtypes), measured_here("bfloat16")
    own, *others = precisions(found, half, [H100])
    assert [each.precision for each in (own, *others)] == names
    plain = estimate_of(found, H100, 8)
    assert own.units_per_s == pytest.approx(plain.units_per_s)
    assert own.units_per_s == pytest.approx(found.run.units_per_s)
    assert others[-1].units_per_s == pytest.approx(half.run.units_per_s)


def test_a_precision_that_was_not_run_is_scaled_by_the_one_that_was() -> None:
    """Else TF32 would seem faster by all that the program is slower than its data sheet."""
    found = measured_here("float32")
    own, tf32, *_ = precisions(found, None, [H100])
    expected = step_time(found.step, H100).seconds
    expected /= step_time(found.step.computed_in("tf32"), H100).seconds
    assert tf32.units_per_s / own.units_per_s == pytest.approx(expected)


def test_a_card_without_tf32_computes_in_float32() -> None:
    (own, *_) = precisions(measured_here("tf32"), None, [profiles.by_name("t4")])
    assert own.precision == "float32"
