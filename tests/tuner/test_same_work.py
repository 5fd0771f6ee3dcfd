"""Same work is a comparison of facts: what differs is told by its cause, whatever moved it."""

from dataclasses import replace
from typing import Any

import pytest

from advisor.model import (
    Effects,
    Items,
    LoaderWork,
    PassItems,
    Run,
    UpdateWork,
    WorkerState,
    WorkFacts,
)
from advisor.tuner import same_work
from advisor.tuner.same_work.facts import updates_of
from advisor.tuner.same_work.items import is_reordered
from tests.runs import a_run

LOSSES = (1.0, 0.9, 1.1, 1.0)


def a_training(batch: float = 4, samples: float = 32.0, **updates: Any) -> Run:
    """Run of a training, whose updates did what is given."""
    usual: dict[str, Any] = {"rates": (0.1, 0.09), "schedule": (0, 1, 2), "losses": LOSSES}
    work = WorkFacts(updates=UpdateWork(**{**usual, **updates}), update_samples=samples)
    return a_run(step_kind="optimizer step", effects=Effects(batch=batch), work=work)


BEFORE = a_training()


def causes(after: Run, before: Run = BEFORE) -> list[str]:
    return [each.cause for each in same_work.differences([before, before], after)]


@pytest.mark.parametrize(
    ("after", "cause"),
    [
        (a_training(32, 64.0), "update-samples"),
        (a_training(32, rates=(0.8, 0.72)), "learning-rate"),
        (a_training(32, rates=(0.1, 0.0897)), "learning-rate"),
        (a_training(32, rates=(0.10001, 0.09)), "learning-rate"),
        (a_training(32, schedule=(0, 8, 16)), "schedule"),
        (a_training(32, averages=(0, 1, 2)), None),
        (a_training(32, losses=(8.0, 7.2, 8.8, 8.0)), "loss-of-update"),
        (a_training(32, losses=(1.05, 0.8, 1.2, 0.9)), None),
        (a_training(32, batch_statistics=True), "batch-statistics"),
        (a_training(4, batch_statistics=True), None),
        (a_training(32, settings={"momentum": 0.9}), None),
        (a_training(32, 32.3), None),
        (a_training(32), None),
    ],
)
def test_an_update_that_differs_is_told(after, cause) -> None:
    """Samples within 2 %, rates but for a schedule's rounding, losses beyond chance."""
    assert causes(after) == ([cause] if cause else [])


@pytest.mark.parametrize(("times", "cause"), [(1.0, None), (16.0, "loss-of-update")])
def test_a_loss_that_falls_fast_is_compared_by_its_shares(times, cause) -> None:
    """Its fall is no spread: it falls on both sides."""
    falling = tuple(0.244 * 0.7**update for update in range(8))
    after = a_training(32, losses=tuple(loss / times for loss in falling))
    assert causes(after, a_training(losses=falling)) == ([cause] if cause else [])


@pytest.mark.parametrize(
    ("weights", "losses", "cause"),
    [
        ("abb", (0.04, 1.24, 1.24), None),
        ("abb", (0.04, 1.24, 0.08), "loss-of-update"),
        ("abb", (0.04, 1.24, 0.04), "loss-of-update"),
        ("aab", (1.0, 1.02, 1.05), None),
        ("abc", (1.0, 1.02, 1.05), "loss-of-update"),
        (("", "", ""), (1.0, 1.02, 1.05), None),
    ],
)
def test_a_loss_is_held_against_originals_that_began_with_its_weights(
    weights, losses, cause
) -> None:
    """A training that draws its weights before it seeds has another first loss in each run.

    Where no two runs begin alike, losses tell nothing, however near they come.
    """
    *originals, after = (
        a_training(batch, first_weights=each, losses=tuple(loss * share for share in LOSSES))
        for each, loss, batch in zip(weights, losses, (4, 4, 32), strict=True)
    )
    told = same_work.differences(originals, after)
    assert [each.cause for each in told] == ([cause] if cause else [])


@pytest.mark.parametrize(
    ("name", "old", "new", "cause"),
    [
        ("averages", (0, 8, 16), (0, 1, 2), "running-average"),
        ("copies_moved", {"ema": (0.1, 0.2)}, {"ema": (1.6, 3.1)}, "running-average"),
        ("copies_moved", {"ema": (0.1, 0.2)}, {"ema": (0.12, 0.17)}, None),
        ("copies_moved", {"ema": (0.1,)}, {"ema": (1.6,)}, None),
        ("copies_moved", {"ema": (0.0, 0.0)}, {"ema": (1.6, 3.1)}, None),
        ("counts_at_updates", {"seen": 4.0}, {"seen": 32.0}, "counters"),
        ("counts_at_updates", {"seen": 32.0}, {"seen": 32.0}, None),
        ("counts_at_updates", {}, {"seen": 32.0}, None),
        ("edits", {"gradients": 8.0}, {"gradients": 1.0}, "own-edits"),
        ("edits", {"gradients": 1.0}, {"gradients": 1.0, "weights": 3.0}, None),
        ("settings", {"momentum": 0.9}, {"momentum": 0.99}, "optimizer-settings"),
        ("rates", (None, None), (0.5, 0.5), None),
    ],
)
def test_what_follows_the_batch_is_told_by_its_name(name, old, new, cause) -> None:
    """A rate on a card was not read, and proves nothing."""
    before, after = a_training(**{name: old}), a_training(32, **{name: new})
    assert causes(after, before) == ([cause] if cause else [])


WARM_UP, COSINE = (0.001, 0.002, 0.003), (0.1, 0.099, 0.096)


@pytest.mark.parametrize(
    ("old", "new", "differs"),
    [
        (WARM_UP, (0.001001, 0.002002, 0.003003), False),
        (WARM_UP, (0.016, 0.032, 0.048), True),
        (COSINE, (0.1, 0.09901, 0.09604), False),
        (COSINE, (0.1, 0.098, 0.092), True),
        (COSINE, (0.1001, 0.0991, 0.0961), True),
    ],
)
def test_a_schedule_may_round_the_updates_of_a_pass(old, new, differs) -> None:
    """`len(loader) // accumulation` is 6,250 with one batch and 6,260 with another. What counts
    batches moves many times as far."""
    before, after = a_training(rates=old), a_training(32, rates=new)
    assert causes(after, before) == ["learning-rate"] * differs


def test_two_rates_that_differ_are_never_printed_alike() -> None:
    after = a_training(32, rates=(0.10000001, 0.09))
    (found,) = same_work.differences([BEFORE], after)
    assert found.sentence.startswith("The learning rate of update 1 is 0.10000001 where it was")


def in_passes(*firsts: tuple[int, ...], steps: int = 100, batch: float = 4) -> Run:
    passes = tuple(PassItems(came=Items(count=len(each), first=each)) for each in firsts)
    work = WorkFacts(loader=LoaderWork(passes=passes, steps=steps))
    return a_run(step_kind="optimizer step", effects=Effects(batch=batch), work=work)


@pytest.mark.parametrize(
    ("old", "new", "frozen"),
    [
        (((1, 2, 3, 4), (5, 6, 7, 8)), ((1, 2, 3, 4), (1, 2, 3, 4)), True),
        (((1, 2, 3, 4), (1, 2, 3, 4)), ((1, 2, 3, 4), (1, 2, 3, 4)), False),
        (((1, 2, 3, 4), (5, 6, 7, 8)), ((1, 2, 3, 4), (7, 6, 5, 8)), False),
        (((1, 2, 3, 4),), ((1, 2, 3, 4), (1, 2, 3, 4)), False),
    ],
)
def test_passes_that_begin_to_repeat_each_other_are_refused(old, new, frozen) -> None:
    found = same_work.differences([in_passes(*old)] * 2, in_passes(*new))
    assert [each.refused for each in found] == [True] * frozen


@pytest.mark.parametrize(
    ("steps", "cause"), [(12, None), (13, None), (8, "items-missing"), (40, "items-repeat")]
)
def test_a_loader_of_larger_batches_has_as_many_items_by_its_length(steps, cause) -> None:
    """100 batches of 4 are 12.5 of 32: a bucket drops its rest, an epoch of 40 batches has more."""
    found = same_work.differences([in_passes()], in_passes(steps=steps, batch=32))
    told = [each.cause for each in found if "length" in each.sentence]
    assert told == [cause] * (cause is not None)


@pytest.mark.parametrize(
    ("first", "losses", "differs"),
    [((3, 1, 2), (1.9, 4.1, 3.0, 9.9), True), ((7, 0, 4), (4.1, 9.9, 3.0, 1.9), False)],
)
def test_losses_are_compared_update_by_update(first, losses, differs) -> None:
    """A small shift is seen beside updates that vary much, where both had the same items."""
    seen = Items(count=3, first=(3, 1, 2), distinct=(2,))
    before, after = a_training(losses=(1.0, 3.0, 2.0, 9.0)), a_training(32)
    shifted = replace(updates_of(after), losses=losses)
    passes = [(PassItems(drawn=replace(seen, first=each)),) for each in ((3, 1, 2), first)]
    loaders = [LoaderWork(passes=each) for each in passes]
    assert before.work is not None
    assert after.work is not None
    before = replace(before, work=replace(before.work, loader=loaders[0]))
    after = replace(after, work=replace(after.work, loader=loaders[1], updates=shifted))
    assert causes(after, before) == ["loss-of-update"] * differs


def test_a_rate_that_equal_runs_disagree_on_is_not_compared() -> None:
    """It follows the losses, or the clock."""
    others = [a_training(rates=(0.1, 0.09)), a_training(rates=(0.1, 0.08))]
    assert same_work.differences(others, a_training(rates=(0.1, 0.5))) == ()


def an_inference(batch: float, *outputs: float, draws: bool = False, **more: Any) -> Run:
    passes = (PassItems(drawn=Items(count=8, first=(0, 1, 2), distinct=(2, 4, 8))),)
    effects = Effects(batch=batch, outputs=(outputs,), **more)
    work = WorkFacts(loader=LoaderWork(draws=draws, passes=passes))
    return a_run(step_kind="loader batch", effects=effects, work=work)


@pytest.mark.parametrize(
    ("after", "differs"),
    [
        (an_inference(8, 0.5, -0.2501), False),
        (an_inference(8, 0.5, -0.1), True),
        (an_inference(1, 0.5, -0.1), False),
        (an_inference(8, 0.5, -0.1, draws=True), False),
        (an_inference(8, 0.5, -0.1, 0.2), False),
        (an_inference(8, 0.5, -0.1, dtype="bfloat16"), False),
    ],
)
def test_the_first_items_result_is_compared_where_nothing_is_drawn(after, differs) -> None:
    """By the same index, in one dtype, of one shape; rounding is none."""
    before = an_inference(1, 0.5, -0.25)
    found = [each.cause for each in same_work.differences([before, before], after)]
    assert ("results" in found) is differs


def in_rows(batch: float, *rows: float, first: tuple[int, ...] = (0, 1, 2, 3)) -> Run:
    """Inference whose items had these results, in the order of the network's rows."""
    passes = (PassItems(drawn=Items(count=len(first), first=first)),)
    loader = LoaderWork(passes=passes, draws=False)
    told = tuple((1.0, row) for row in rows)
    effects = Effects(batch=batch, forwards_per_unit=1.0, rows=told)
    return a_run(step_kind="batch", effects=effects, work=WorkFacts(loader=loader))


@pytest.mark.parametrize(
    ("after", "differs"),
    [
        (in_rows(4, 1.0, 2.0, 3.0, 4.0), False),
        (in_rows(4, 1.001, 2.001, 3.0, 4.0), False),
        (in_rows(4, 4.0, 2.0, 1.0, 3.0), False),
        (in_rows(4, 1.0, 2.0, 3.0, 3.6), True),
        (in_rows(4, 1.0, 2.0, 3.0, 3.6, first=(0, 7, 5, 6)), False),
        (in_rows(1, 1.0, 2.0, 3.0, 3.6), False),
    ],
)
def test_results_of_later_rows_are_compared_item_by_item(after, differs) -> None:
    """Sorted within a batch they are the same; of other items they tell nothing."""
    before = in_rows(1, 1.0, 2.0, 3.0, 4.0)
    found = same_work.differences([before, before], after)
    assert [each.cause for each in found] == ["results"] * differs


def a_stream(workers: int, *states: WorkerState, endless: bool = False, cut: str = "") -> Run:
    loader = LoaderWork(iterable=True, endless=endless, workers=states, each_worker=cut)
    return a_run(effects=Effects(workers=workers), work=WorkFacts(loader=loader))


@pytest.mark.parametrize(("workers", "then", "other"), [(0, 1, False), (0, 2, True), (2, 1, True)])
def test_streams_in_several_workers_come_in_another_order(workers, then, other) -> None:
    """Results that are written by their place would change places."""
    assert is_reordered(a_stream(workers), a_stream(then)) is other


def test_a_stream_that_is_dealt_out_by_batches_comes_as_it_was() -> None:
    first = Items(count=3, first=(3, 1, 2), distinct=(2,))
    work = WorkFacts(loader=LoaderWork(iterable=True, passes=(PassItems(came=first),)))
    before, after = (replace(a_stream(workers), work=work) for workers in (0, 2))
    assert not is_reordered(before, after)


@pytest.mark.parametrize(
    ("after", "refused"),
    [
        (a_stream(2, WorkerState(), WorkerState(worker=1)), True),
        (a_stream(2, WorkerState(asked=("id", "info"))), True),
        (a_stream(2), True),
        (a_stream(2, WorkerState(asked=("id", "num_workers"))), False),
        (a_stream(2, WorkerState(asked=("id", "num_workers")), cut="islice(all, 9)"), True),
        (a_stream(2, WorkerState(asked=("dataset",))), True),
        (a_stream(2, WorkerState(asked=("num_workers",))), True),
        (a_stream(2, WorkerState(part="a"), WorkerState(worker=1, part="b")), False),
        (a_stream(2, WorkerState(), endless=True), False),
        (a_stream(1, WorkerState()), False),
    ],
)
def test_a_stream_in_several_workers_has_to_ask_for_its_part(after, refused) -> None:
    """What could not be seen is no sharding."""
    found = same_work.differences([a_stream(0)], after)
    assert [each.refused for each in found] == [True] * refused


def test_whole_passes_of_both_prove_more_than_any_question() -> None:
    """A stream that is shared out by other means has as many items in a pass."""
    before, after = a_stream(0), a_stream(2, WorkerState())
    assert before.work is not None
    assert after.work is not None
    before = replace(before, work=replace(before.work, pass_items=(160.0,)))
    after = replace(after, work=replace(after.work, pass_items=(160.0, 160.0)))
    assert same_work.differences([before], after) == ()
    assert same_work.observed([before], after)["items"] == "the same 160 items a pass"


@pytest.mark.parametrize(
    ("old", "new", "repeats"),
    [
        ((2, 4, 8, 16), (2, 4, 8, 8), True),
        ((2, 4, 8, 16), (2, 4, 8, 15), False),
        ((2, 3, 7), (2, 3, 5), False),
        ((2, 3, 7, 7, 7, 7), (2, 3, 5, 7, 7, 7), False),
        ((2, 4, 8, 16, 30, 50), (2, 4, 8, 16, 20, 30), True),
        ((2, 4), (1, 1), False),
    ],
)
def test_items_repeat_where_fewer_differ_than_by_chance(old, new, repeats) -> None:
    """Of a few kinds of items it is chance how many came among the first."""
    before, after = (
        a_run(work=WorkFacts(loader=LoaderWork(passes=(PassItems(came=Items(distinct=seen)),))))
        for seen in (old, new)
    )
    found = [each.cause for each in same_work.differences([before], after)]
    assert found == ["items-repeat"] * repeats


def test_without_facts_nothing_is_said() -> None:
    assert same_work.differences([a_run()], a_run()) == ()
    assert same_work.differences([], a_run()) == ()


def inferring(batch: float, files: int | None = None) -> Run:
    """Run of an inference over a loader, that left so many files."""
    effects = Effects(batch=batch)
    run = a_run(step_kind="batch", effects=effects, work=WorkFacts(loader=LoaderWork()))
    return replace(run, units=640.0, whole_units=640.0, files_in_window=files)


@pytest.mark.parametrize(
    ("after", "cause"),
    [
        (inferring(32, files=20), "results"),
        (inferring(32, files=160), None),
        (inferring(32, files=None), None),
    ],
)
def test_files_that_hold_a_batch_are_told(after, cause) -> None:
    """A file for every batch of 4 is another one for a batch of 32; one for every four items
    stays."""
    assert causes(after, inferring(4, files=160)) == ([cause] if cause else [])


@pytest.mark.parametrize(
    ("after", "cause"),
    [
        (a_training(32, parts=12.0), None),
        (a_training(32, parts=6.0), "update-samples"),
        (a_training(32, mixes=True), "loss-of-update"),
        (a_training(32, beside={"Vq.book": 1.0}), "running-average"),
        (a_training(32, beside={"Vq.book": 8.0}), None),
        (a_training(4, parts=6.0, mixes=True, beside={"Vq.book": 1.0}), None),
    ],
)
def test_what_an_update_reaches_and_moves_is_told_of_another_batch(after, cause) -> None:
    before = a_training(parts=12.0, beside={"Vq.book": 8.0})
    assert causes(after, before) == ([cause] if cause else [])


@pytest.mark.parametrize(
    ("losses", "length", "cause"),
    [
        ((1.1, 0.9, 1.0, 1.0), 0.5, None),
        ((1.1, 0.9, 1.0, 1.0), 0.0625, "loss-of-update"),
        ((8.0, 7.2, 8.8, 8.0), 0.5, None),
        ((2.0, 1.8, 2.2, 2.0), 0.5, "loss-of-update"),
    ],
)
def test_sums_that_the_program_divides_at_the_update_are_no_other_loss(
    losses, length, cause
) -> None:
    """Told by the gradients, which are then of equal length as the optimizer takes them."""
    before = a_training(losses=(8.0, 7.2, 8.8, 8.0), gradient=0.5)
    before = replace(before, effects=replace(before.effects, accumulation=8.0))
    after = a_training(32, losses=losses, gradient=length)
    after = replace(after, effects=replace(after.effects, accumulation=1.0))
    assert causes(after, before) == ([cause] if cause else [])


def in_updates(batches: float, **work: Any) -> Run:
    """Run of a training of 32 samples an update, in so many batches."""
    facts = WorkFacts(update_samples=32.0, **work)
    effects = Effects(batch=32 / batches, accumulation=batches, trains="optimizer")
    return a_run(step_kind="optimizer step", effects=effects, work=facts)


@pytest.mark.parametrize(
    ("name", "old", "new", "cause"),
    [
        ("update_rows", 160.0, 40.0, "update-samples"),
        ("update_rows", 64.0, 64.0, None),
        ("untrained", 0.02, 0.27, "items-missing"),
        ("untrained", 0.02, 0.04, None),
        ("untrained", 0.5, 0.0, None),
        ("untrained", None, 0.2, None),
        ("updates", UpdateWork(once_a_batch=("next(ramp)",)), UpdateWork(), "counters"),
    ],
)
def test_what_is_done_by_batches_is_told_of_fewer_in_an_update(name, old, new, cause) -> None:
    """As long as an update has as many batches, nothing of it is another."""
    before, after = in_updates(16, **{name: old}), in_updates(1, **{name: new})
    assert causes(after, before) == ([cause] if cause else [])
    assert causes(in_updates(16, **{name: old}), before) == []


def test_rows_that_differ_from_run_to_run_are_not_compared() -> None:
    runs = [in_updates(16, update_rows=rows) for rows in (150.0, 160.0)]
    assert same_work.differences(runs, in_updates(1, update_rows=40.0)) == ()


def by_parts(batch: float, *spread: float) -> Run:
    """Run of a training whose updates of 8 items have indices as far apart as that."""
    drawn = Items(count=64, first=(1,), spread=spread)
    loader = LoaderWork(passes=(PassItems(drawn=drawn),))
    effects = Effects(batch=batch, trains="optimizer")
    work = WorkFacts(update_samples=8.0, loader=loader)
    return a_run(step_kind="optimizer step", effects=effects, work=work)


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        (by_parts(1, 0.1, 0.6, 0.9), by_parts(8, 0.1, 0.1, 0.1), "update-samples"),
        (by_parts(1, 0.1, 0.1, 0.1), by_parts(8, 0.1, 0.1, 0.1), None),
        (by_parts(1, 0.1, 0.6, 0.9), by_parts(8, 0.1, 0.5, 0.8), None),
        (by_parts(1, 0.1, 0.6, 0.9), by_parts(8, 0.1), None),
        (by_parts(1, 0.1, 0.6, 0.9), by_parts(1, 0.1, 0.1, 0.1), None),
    ],
)
def test_batches_of_items_that_lie_side_by_side_are_told(before, after, cause) -> None:
    """A few of them in an update were of all kinds, and one is of one kind."""
    assert causes(after, before) == ([cause] if cause else [])


def set_by_init(persistent: bool, *values: str) -> Run:
    """Run whose first worker was set to this in each of its passes."""
    workers = tuple(WorkerState(worker=0, set={"dataset.level": value}) for value in values)
    effects = Effects(workers=2, persistent_workers=persistent)
    return a_run(effects=effects, work=WorkFacts(loader=LoaderWork(workers=workers)))


@pytest.mark.parametrize(
    ("values", "persistent", "told"),
    [
        (("a", "b"), True, True),
        (("a", "a"), True, False),
        (("a",), True, False),
        (("a", "b"), False, False),
    ],
)
def test_what_the_init_function_sets_anew_in_each_pass_is_told(values, persistent, told) -> None:
    """Workers that stay are never initialised again."""
    after = set_by_init(persistent, "a")
    assert causes(after, set_by_init(False, *values)) == ["set-by-program"] * told


def at_indices(workers: int, *came: int, alike: bool | None = True, **state: Any) -> Run:
    """Run whose items at three indices hold what came."""
    drawn, content = (Items(count=3, first=each, distinct=(2,)) for each in ((7, 8, 9), came))
    loader = LoaderWork(passes=(PassItems(drawn=drawn, came=content),), by_items=state)
    return a_run(effects=Effects(workers=workers), work=WorkFacts(loader=loader, items_alike=alike))


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        (at_indices(0, 1, 2, 3), at_indices(2, 1, 5, 3), True),
        (at_indices(0, 1, 2, 3), at_indices(2, 1, 2, 3), False),
        (at_indices(0, 1, 2, 3), at_indices(0, 1, 5, 3), False),
        (at_indices(0, 1, 2, 3, alike=None), at_indices(2, 1, 5, 3), False),
        (at_indices(0, 1, 2, 3, random="generator"), at_indices(2, 1, 5, 3), False),
    ],
)
def test_what_lies_at_an_index_stays_what_it_was(before, after, refused) -> None:
    """Where numbers are drawn for it, other processes draw others."""
    found = same_work.differences([before, before], after)
    assert [each.refused for each in found] == [True] * refused


def padded(batch: float, *gradient: float, draws: bool = False) -> Run:
    """Run of a training without draws, whose items are padded by their batch."""
    drawn, came = Items(count=2, first=(4, 1)), Items(count=2, first=(int(batch), 0))
    updates = UpdateWork(losses=LOSSES, gradients=(gradient, gradient))
    state: dict[str, Any] = {"by_items": {"random": "generator"}} if draws else {}
    loader = LoaderWork(draws=False, passes=(PassItems(drawn=drawn, came=came),), **state)
    work = WorkFacts(updates=updates, update_samples=32.0, loader=loader)
    return a_run(step_kind="optimizer step", effects=Effects(batch=batch), work=work)


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        (padded(2, 1.0, 0.0), padded(32, 1.0, 0.5), "loss-of-update"),
        (padded(2, 1.0, 0.0), padded(32, 1.0, 0.1), None),
        (padded(2, 1.0, 0.0), padded(2, 1.0, 0.5), None),
        (padded(2, 1.0, 0.0, draws=True), padded(32, 1.0, 0.5, draws=True), None),
        (padded(2), padded(32), None),
    ],
)
def test_gradients_of_the_same_items_are_compared_where_losses_are_alike(
    before, after, cause
) -> None:
    """A mean over tokens weighs short texts by their neighbours, and hardly shows in a loss."""
    assert causes(after, before) == ([cause] if cause else [])


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        ((70.0, 20.0, 70.0, 20.0), (20.0, 20.0), "results"),
        ((50.0, 50.0), (50.0, 50.0), None),
        ((70.0, 20.0, 10.0), (70.0, 12.0, 10.0, 9.0), None),
        ((20.0, 30.0), (35.0, 40.0), None),
        ((), (20.0,), None),
    ],
)
def test_generations_of_fewer_tokens_in_a_larger_batch_are_told(old, new, cause) -> None:
    """The first of them has as many as the longest of its prompts had alone, if it waits for it."""
    before, after = (
        a_run(effects=Effects(batch=batch), work=WorkFacts(generations=calls))
        for batch, calls in ((1, old), (32, new))
    )
    assert causes(after, before) == ([cause] if cause else [])
    assert causes(replace(after, effects=before.effects), before) == []
