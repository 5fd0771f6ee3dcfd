"""Whether two trials did the same work, and what differs, by what was observed.

A knob's name says nothing here. What the original's runs saw is compared with what a
candidate's run saw; where a fact is missing on either side it proves no difference, but
where more workers could only be safe if it were known, the change is left to the user.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median, stdev
from typing import NamedTuple

from advisor import numbers
from advisor.model import (
    TRAINING_STEPS,
    Items,
    LoaderWork,
    Run,
    UpdateWork,
    WorkDifference,
    WorkerState,
)
from advisor.tuner import policy

KINDS = ("drawn", "came")
"""Numbers that stand for items: indices, and content."""
SHARDS = {"id", "num_workers"}
"""Fields of the worker's info without which a worker cannot take its part of a stream."""
RUNNING = "iterator."
"""Start of the paths of generators that lie in a stream's running code."""
SEEDS = {"seed", "initial_seed"}
"""What a worker asks for to seed a generator otherwise in each worker and pass."""
Differences = Iterator[WorkDifference]


class Compared(NamedTuple):
    """Runs of the original, and one of a candidate."""

    originals: Sequence[Run]
    after: Run

    @property
    def before(self) -> Run:
        return self.originals[-1]


def differences(originals: Sequence[Run], after: Run) -> tuple[WorkDifference, ...]:
    """What `after` did otherwise than the `originals`, most harmful first."""
    if not originals:
        return ()
    found = [each for rule in RULES for each in rule(Compared(originals, after))]
    return tuple(sorted(found, key=lambda each: not each.refused))


def loader_of(run: Run) -> LoaderWork:
    """Work of the run's loader; an empty one where it told nothing."""
    return (run.work and run.work.loader) or LoaderWork()


def updates_of(run: Run) -> UpdateWork:
    return (run.work and run.work.updates) or UpdateWork()


# Items


def repeated_items(compared: Compared) -> Differences:
    """Items that come twice in a pass where the original's came once."""
    originals, before, after = compared.originals, compared.before, compared.after
    for name in KINDS:
        old = [
            share
            for run in originals
            for share in [first_items(run, name).distinct]
            if share
        ]
        new = first_items(after, name).distinct
        size = min([len(new), *map(len, old)]) - 1
        if not old or size + 1 < policy.REPEATS_TOLD_FROM:
            continue
        least, many = min(each[size] for each in old), 2.0 ** (size + 1)
        all_differ = least >= policy.ALL_DIFFERENT_FROM * many
        if not all_differ and many < policy.FEW_KINDS:
            continue
        below = policy.REPEATING_BELOW if all_differ else policy.DRAWN_REPEATING_BELOW
        if new[size] < below * least:
            shown = f"Of the first {2 ** (size + 1)} items {new[size]} differed, of the original's"
            yield WorkDifference(
                cause="items-repeat",
                sentence=f"{shown} {least}: items are repeated.",
                refused=True,
                of_workers=moved_workers(before, after),
            )
            return


def first_items(run: Run, name: str) -> Items:
    passes = loader_of(run).passes
    found: Items = getattr(passes[0], name) if passes else Items()
    return found


def items_of_a_pass(run: Run) -> float | None:
    """Items of one whole pass that was seen, with those that drop_last leaves out."""
    seen = run.work.pass_items if run.work else ()
    return median(seen) + (run.effects.left_out or 0) if seen else None


def other_passes(compared: Compared) -> Differences:
    """Whole passes with more or fewer items than the original's."""
    originals, before, after = compared.originals, compared.before, compared.after
    known = [items for run in originals if (items := items_of_a_pass(run)) is not None]
    items = items_of_a_pass(after)
    if items is None or not known:
        return
    near = min(known, key=lambda each: abs(each - items))
    if abs(items - near) <= policy.SAMPLES_TIE * near:
        return
    more = items > near
    yield WorkDifference(
        cause="items-repeat" if more else "items-missing",
        sentence=f"A pass had {items:g} items, where the original's had {near:g}.",
        refused=True,
        of_workers=moved_workers(before, after),
    )


def frozen_passes(compared: Compared) -> Differences:
    """Passes that repeat each other where the original's differ: what made them differ is lost.

    Workers that begin each pass from one state, or that stay and miss what the program sets, do so.
    """
    known = [repeats_first_pass(run) for run in (*compared.originals, compared.after)]
    if known[-1] and all(repeats is False for repeats in known[:-1]):
        why = "Each pass gave the same items, where the original's passes differed."
        moved = moved_workers(compared.before, compared.after)
        yield WorkDifference(
            cause="items-repeat", sentence=why, refused=True, of_workers=moved
        )


def repeats_first_pass(run: Run) -> bool | None:
    """True if the second pass began with the first one's items; None of fewer passes."""
    firsts = [each.came.first for each in loader_of(run).passes[:2]]
    if len(firsts) < 2 or min(map(len, firsts)) < policy.FEWEST_OF_A_PASS:
        return None
    size = min(map(len, firsts))
    return firsts[0][:size] == firsts[1][:size]


def shorter_passes(compared: Compared) -> Differences:
    """Passes of fewer items by their loader's length, as groups that each drop a rest have."""
    if not moved_batch(compared):
        return
    sizes = [
        (loader_of(run).steps or 0) * (run.effects.batch or 0) for run in ends(compared)
    ]
    old, new = sizes
    batch = max(run.effects.batch or 0 for run in ends(compared))
    if old and new and new + batch < (1 - policy.FEWER_ITEMS_TIE) * old:
        why = (
            f"A pass has about {new:g} items by its loader's length, where it had {old:g}."
        )
        yield suggested("items-missing", why)


def updates_of_a_pass(compared: Compared) -> Differences:
    """Another number of updates in a whole pass: each may drop what fills no update."""
    if not moved_batch(compared) or not compared.before.trains:
        return
    old, new = (
        [each.updates for each in loader_of(run).passes if each.updates]
        for run in ends(compared)
    )
    if (
        old
        and new
        and abs(fmean(new) - fmean(old)) > policy.UPDATES_OF_PASS_TIE * fmean(old)
    ):
        why = f"A pass has {fmean(new):g} updates, where it had {fmean(old):g}."
        yield suggested("update-samples", why)


def dropped_items(compared: Compared) -> Differences:
    """Items of an incomplete last batch that a training never sees: the same ones in each pass."""
    before, after = compared.before, compared.after
    old, new = before.effects.left_out or 0, after.effects.left_out or 0
    first = first_items(after, "drawn").first
    in_order = len(first) > 1 and first == tuple(range(len(first)))
    if before.trains and in_order and new > old:
        why = f"The last {new:g} items are dropped in each pass, where it was {old:g}."
        yield suggested("items-missing", why)


def is_same_pass(before: Run, after: Run) -> bool:
    """True if whole passes of both were seen, with as many items."""
    old, new = items_of_a_pass(before), items_of_a_pass(after)
    return (
        old is not None and new is not None and abs(new - old) <= policy.SAMPLES_TIE * old
    )


def unsharded(compared: Compared) -> Differences:
    """A stream in several workers that do not share it out.

    An endless one has no pass that could be repeated; whether its workers yield the same is
    seen by their items.
    """
    before, after = compared.before, compared.after
    work, many = loader_of(after), after.effects.workers or 0
    if not work.iterable or many < 2 or not moved_workers(before, after):
        return
    if is_same_pass(before, after) or work.endless:
        return
    asked = {field for state in work.workers for field in state.asked}
    if asked >= SHARDS or has_own_parts(work.workers):
        return
    if work.workers and not asked:
        why = "No worker asked which part is its own: each worker would yield all of it."
    elif "seeds" in asked:
        why = (
            "Workers ask how many they are for a seed only, so each would yield all of it."
        )
    elif asked:
        why = "No worker asked for both its number and how many share the data."
    else:
        why = "Whether its workers share the data could not be seen."
    yield WorkDifference(cause="not-sharded", sentence=why, refused=True, of_workers=True)


def has_own_parts(workers: Sequence[WorkerState]) -> bool:
    """True if each worker's init function left it another part of the dataset."""
    parts = {each.worker: each.part for each in workers}
    return len(parts) > 1 and all(parts.values()) and len(set(parts.values())) == len(parts)


def is_reordered(before: Run, after: Run) -> bool:
    """True if items of a stream come in another order: several workers take turns.

    A stream that is dealt out a batch at a time comes as it was, which the first items show.
    """
    several = max(before.effects.workers or 0, after.effects.workers or 0) > 1
    old, new = (first_items(run, "came").first for run in (before, after))
    size = min(len(old), len(new))
    as_before = size > 0 and old[:size] == new[:size]
    streams = bool(loader_of(after).iterable) and several and moved_workers(before, after)
    return streams and not as_before


# State of the dataset


def moved_workers(before: Run, after: Run) -> bool:
    old, new = before.effects, after.effects
    return (old.workers or 0, is_kept(before)) != (new.workers or 0, is_kept(after))


def is_kept(run: Run) -> bool:
    """True if workers outlive a pass."""
    return bool(run.effects.workers and run.effects.persistent_workers)


def shared_generators(compared: Compared) -> Differences:
    """Random generators that each worker has an equal copy of."""
    originals, before, after = compared.originals, compared.before, compared.after
    if not moved_workers(before, after) or not after.effects.workers:
        return
    work = loader_of(after)
    if not work.iterable and any(run.work and run.work.items_alike for run in originals):
        return  # each item seeds it, or nothing of it shows in an item
    states = [loader_of(run).by_items for run in originals]
    states += [each.changed for each in work.workers]
    drawn = {
        path for state in states for path, kind in state.items() if kind == "generator"
    }
    asked = {field for each in work.workers for field in each.asked}
    shares = asked >= SHARDS or has_own_parts(work.workers)
    for path in sorted(drawn):
        if path.startswith(RUNNING):
            # It begins anew with each pass in any process, and may order a part of the items.
            if shares or not is_equal_in_two(work.workers, path):
                continue
            why = "and workers seed it alike, so they draw the same numbers"
        elif not work.workers and path.startswith(("dataset", "collate_fn")):
            why = "and how workers seed it could not be seen"
        elif any(
            each.before.get(path) == work.generators.get(path, "") for each in work.workers
        ):
            why = "so every worker draws the same numbers"
        elif is_equal_in_two(work.workers, path):
            why = "and workers seed it alike, so they draw the same numbers"
        elif repeats_each_pass(work.workers, path) and not is_kept(after):
            why = "and is seeded alike for each pass, so every pass draws the same numbers"
        elif is_made_anew(work.workers, path) and not is_kept(after):
            why = "and made there for each pass: whether passes draw the same could not be seen"
        elif is_seeded_by_number(work.workers, path) and not is_kept(after):
            why = "and set there without torch's seed: every pass may draw the same numbers"
        else:
            continue
        yield WorkDifference(
            cause="shared-generator",
            sentence=f"The random generator `{shown(path)}` is copied into each worker, {why}.",
            refused=True,
            of_workers=True,
        )
        return


def seeded_loop(compared: Compared) -> Differences:
    """Items that seed the process's own generators, once the loop's process makes them.

    After the same first batch the generator is equal in a worker and in the loop's process, though
    they began with other ones.
    """
    before, after = compared.before, compared.after
    if not before.effects.workers or after.effects.workers:
        return
    here = loader_of(after)
    for path, state in sorted(here.first_fetch.items()):
        if any(
            each.after.get(path) == state
            and each.before.get(path) not in (state, here.generators.get(path))
            for each in loader_of(before).workers
        ):
            why = f"Items seed the random generator `{path}`, from which the training would draw."
            yield suggested("shared-generator", why, of_workers=True)
            return


def is_equal_in_two(workers: Sequence[WorkerState], path: str) -> bool:
    """True if two workers of one pass were equal after their first items."""
    first = {each.worker: each.after.get(path) for each in reversed(workers)}
    known = [state for state in first.values() if state is not None]
    return len(set(known)) < len(known)


def repeats_each_pass(workers: Sequence[WorkerState], path: str) -> bool:
    """True if one worker began two passes alike, or was alike after the first items of two."""
    for states in ([each.before for each in workers], [each.after for each in workers]):
        seen = [
            (each.worker, state[path])
            for each, state in zip(workers, states, strict=True)
            if path in state
        ]
        if len(set(seen)) < len(seen):
            return True
    return False


def is_seeded_by_number(workers: Sequence[WorkerState], path: str) -> bool:
    """True if an init function sets the generator, as by the worker's number, in each pass.

    What it asks torch for differs in each pass. Where two passes were seen, they tell it.
    """
    seeded = [each for each in workers if path in each.seeded]
    asked = {field for each in workers for field in each.asked}
    several = len({each.worker for each in seeded}) < len(seeded)
    return bool(seeded) and not several and not asked & SEEDS


def is_made_anew(workers: Sequence[WorkerState], path: str) -> bool:
    """True if workers make the generator with their first item, and no second pass was seen.

    Each begins without it, so its seed is the program's. A seed of torch's differs in each pass.
    """
    made = [each for each in workers if path in each.after and path not in each.before]
    asked = {field for each in workers for field in each.asked}
    several = len({each.worker for each in made}) < len(made)
    return bool(made) and not several and not asked & SEEDS


STATE_WORDS = {
    "count": "counts its items in `{}`, and each worker would count its own",
    "order": "reorders `{}` from item to item, and each worker would reorder its own",
    "array": "writes into `{}` from item to item, and each worker would write into its own",
}
"""Change of a dataset's state to what it means in workers."""


def changed_state(compared: Compared) -> Differences:
    """State that items depend on, kept by the dataset in each process that makes items."""
    originals, before, after = compared.originals, compared.before, compared.after
    if not moved_workers(before, after):
        return
    alone, work = not before.effects.workers, loader_of(after)
    lost = is_lasting(before) and not is_lasting(after)
    alike = any(run.work and run.work.items_alike for run in originals)
    for path, kind in sorted(changed_by_items(originals).items()):
        if not path.startswith(("dataset", "collate_fn")):
            continue
        keeps = kind == "kept" or (kind == "size" and not work.iterable)
        if keeps and (lost if work.iterable else alone or lost):
            why = f"The dataset keeps what it loaded in `{shown(path)}`"
            kept = (
                "each worker would keep its own"
                if is_kept(after)
                else "each pass starts empty"
            )
            yield suggested(
                "cache-of-dataset", f"{why}; with workers {kept}.", of_workers=True
            )
        elif kind == "start" and work.iterable and is_lasting(before) != is_lasting(after):
            how = "begin" if lost else "began"
            why = f"The dataset counts its passes in `{shown(path)}`, which workers {how} anew."
            yield suggested("state-of-dataset", why, of_workers=True)
        elif kind == "count" or (
            kind in STATE_WORDS and alone and not work.iterable and not alike
        ):
            why = f"The dataset {STATE_WORDS[kind].format(shown(path))}."
            yield suggested("state-of-dataset", why, of_workers=True)


def changed_by_items(runs: Sequence[Run]) -> dict[str, str]:
    """State that making items changed, by kind, in whatever process makes them."""
    states = [loader_of(run).by_items for run in runs]
    states += [each.changed for run in runs for each in loader_of(run).workers]
    return {path: kind for state in states for path, kind in state.items()}


def is_lasting(run: Run) -> bool:
    """True if what a dataset keeps outlives a pass."""
    return not run.effects.workers or is_kept(run)


def hidden_cache(compared: Compared) -> Differences:
    """Items that come quicker the second time, though nothing was seen to be kept."""
    originals, before, after = compared.originals, compared.before, compared.after
    if before.effects.workers or not after.effects.workers:
        return
    if any("size" in loader_of(run).by_items.values() for run in originals):
        return  # told by its name
    known = (run.work.items_ms for run in originals if run.work)
    for first_ms, again_ms in filter(None, known):
        if (
            first_ms >= policy.WORTH_KEEPING_MS
            and first_ms > policy.KEPT_IF_QUICKER * again_ms
        ):
            times = " ms and ".join(numbers.measure(ms, 2) for ms in (first_ms, again_ms))
            why = f"An item takes {times} ms again: what is kept would not be kept in workers."
            yield suggested("cache-of-dataset", why, of_workers=True)
            return


def set_by_program(compared: Compared) -> Differences:
    """State that the program sets between passes, which workers that stay never see.

    Where no trial came to a second pass, the code around the first one tells.
    """
    originals, before, after = compared.originals, compared.before, compared.after
    if not is_kept(after) or is_kept(before):
        return
    works = [loader_of(run) for run in (*originals, after)]
    for work in works:
        by_loop = work.by_loop.keys() if before.effects.workers else set()
        for path in sorted((work.by_program.keys() | by_loop) - work.by_items.keys()):
            why = f"The program changes `{shown(path)}` between passes; workers that stay miss it."
            yield suggested("set-by-program", why, of_workers=True)
            return
    if all(len(work.passes) < 2 for work in works):
        for name in works[-1].set_around[:1]:
            why = f"A loop around the pass sets `{name}` of its data; workers that stay miss it."
            yield suggested("set-by-program", why, of_workers=True)


def set_by_loop(compared: Compared) -> Differences:
    """State that the loop over the batches sets, which workers of the pass never see.

    Without workers the next item is made by what was set. Where no batch set it yet, the code of
    the loop tells.
    """
    before, after = compared.before, compared.after
    if bool(before.effects.workers) == bool(after.effects.workers):
        return
    alone = compared.originals if after.effects.workers else [after]
    works = [loader_of(run) for run in alone]
    paths = sorted({path for work in works for path in work.by_loop})
    names = [shown(path) for path in paths] or [
        n for work in works for n in work.set_inside
    ]
    miss = "would miss" if after.effects.workers else "missed"
    for name in names[:1]:
        why = f"The loop over the batches sets `{name}` of its data; workers {miss} it."
        yield suggested("set-by-program", why, of_workers=True)


def shown(path: str) -> str:
    """Path as the program would write it: `rng` of its dataset, `transform.rng`."""
    roots = ("dataset.", "collate_fn.", RUNNING)
    inner = path.split(".", 1)[-1] if path.startswith(roots) else path
    return inner.removesuffix("[]")


def suggested(cause: str, sentence: str, *, of_workers: bool = False) -> WorkDifference:
    return WorkDifference(
        cause=cause,  # type: ignore[arg-type]
        sentence=sentence,
        refused=False,
        of_workers=of_workers,
    )


# Updates


def update_samples(run: Run) -> float | None:
    """Samples of one update, of all ranks; None where they were not seen."""
    if run.work is not None and run.work.update_samples is not None:
        return run.work.update_samples
    seen = run.effects
    batch = seen.group_batch or seen.batch
    return batch * seen.accumulation if batch and seen.accumulation else None


def other_updates(compared: Compared) -> Differences:
    """Updates over more or fewer samples."""
    before, after = compared.before, compared.after
    if not {before.step_kind, after.step_kind} & set(TRAINING_STEPS):
        return
    old, new = update_samples(before), update_samples(after)
    if old and new and abs(new - old) > policy.SAMPLES_TIE * old:
        yield suggested(
            "update-samples",
            f"An update averaged over {new:g} samples, where it was {old:g}.",
        )


def other_parts(compared: Compared) -> Differences:
    """Fewer weights that an update moves, as where each batch is of one task.

    Where it is another number from run to run, as of layers that are left out by chance, it tells
    nothing.
    """
    if not moved_batch(compared):
        return
    known = {updates_of(run).parts for run in compared.originals}
    old, new = known.pop(), updates_of(compared.after).parts
    if not known and old and new and abs(new - old) > policy.SAMPLES_TIE * old:
        why = f"An update has gradients of {new:g} weights, where it had {old:g}."
        yield suggested("update-samples", why)


def other_rates(compared: Compared) -> Differences:
    """Another learning rate at the same update; none where equal runs differ by themselves."""
    originals, after = compared.originals, compared.after
    of_runs = [rates_of(run) for run in originals]
    for name, new in rates_of(after).items():
        known = [rates[name] for rates in of_runs if rates.get(name)]
        moved = first_other(known, new) if known and new else None
        if moved is not None:
            at, old_rate, rate = moved
            shown = " where it was ".join(apart(rate, old_rate))
            of = f" by {name}" if name else ""
            yield suggested(
                "learning-rate", f"The learning rate of update {at}{of} is {shown}."
            )
            return


def rates_of(run: Run) -> dict[str, tuple[float | None, ...]]:
    """Learning rates by update: of the first group of the optimizer that steps most, and others."""
    updates = updates_of(run)
    return {"": updates.rates, **updates.other_rates}


def first_other(
    known: Sequence[Sequence[float | None]], new: Sequence[float | None]
) -> tuple[int, float, float] | None:
    """First update with another rate than the originals', both rates; None without one.

    None as well where equal runs differ before: the rate follows the losses, or the clock.
    """
    begun = start_of(known[0])
    for at, (rate, *rates) in enumerate(zip(new, *known, strict=False), 1):
        if any(differ(rates[0], each) for each in rates):
            return None
        if differ(rates[0], rate) and not is_rounding(begun, rates[0], rate):
            return at, float(rates[0] or 0), float(rate or 0)
    return None


def start_of(rates: Sequence[float | None]) -> float | None:
    """Rate from which a schedule moves: 0 for a warm-up from nothing, else the first."""
    first, second = (*rates[:2], None, None)[:2]
    from_nothing = first and second and second >= policy.FROM_NOTHING * first
    return 0.0 if from_nothing else first


def is_rounding(begun: float | None, old: float | None, new: float | None) -> bool:
    """True if a schedule moved nearly as far, as one over `len(loader) // accumulation` does."""
    if begun is None or old is None or new is None or old == begun:
        return False
    return abs(new - old) <= policy.SCHEDULE_TIE * abs(old - begun)


def apart(one: float, other: float) -> tuple[str, str]:
    """Two numbers that differ, with as many digits as show it."""
    pairs = [
        (numbers.measure(one, digits), numbers.measure(other, digits))
        for digits in range(4, 18)
    ]
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[-1])


def differ(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return False
    return not math.isclose(one, other, rel_tol=policy.RATE_TIE, abs_tol=1e-15)


def other_settings(compared: Compared) -> Differences:
    """Numbers of the optimizer, such as its momentum, that follow the batch."""
    originals, before, after = compared.originals, compared.before, compared.after
    old, new = updates_of(before).settings, updates_of(after).settings
    for name in sorted(old.keys() & new.keys() - {"initial_lr"}):
        steady = all(
            not differ(old[name], updates_of(r).settings.get(name)) for r in originals
        )
        if steady and differ(old[name], new[name]):
            shown = f"{new[name]:g} where it was {old[name]:g}"
            yield suggested("optimizer-settings", f"The optimizer's {name} is {shown}.")
            return


def other_schedule(compared: Compared) -> Differences:
    """Another number of scheduler steps in an update."""
    old, new = (steps_of_an_update(updates_of(run).schedule) for run in ends(compared))
    if old is not None and new is not None and old != new:
        times = f"{new:g} times an update where it stepped {old:g} times"
        yield suggested("schedule", f"The learning rate's scheduler steps {times}.")


def other_averages(compared: Compared) -> Differences:
    """Another number of moves of the weights' running average in an update."""
    old, new = (moves_of_averages(updates_of(run)) for run in ends(compared))
    for name in sorted(old.keys() & new.keys()):
        if old[name] != new[name]:
            times = f"{new[name]:g} times an update where it moved {old[name]:g} times"
            yield suggested("running-average", f"{name} moves {times}.")


def other_buffers(compared: Compared) -> Differences:
    """Another number of moves in an update of what networks keep beside their weights."""
    if not moved_batch(compared):
        return
    old, new = (updates_of(run).beside for run in ends(compared))
    for name in sorted(old.keys() & new.keys()):
        if old[name] != new[name]:
            times = f"{new[name]:g} times an update where it moved {old[name]:g} times"
            yield suggested("running-average", f"`{name}` moves {times}.")
            return


def other_files(compared: Compared) -> Differences:
    """Files of an inference that hold a batch each."""
    before, after = ends(compared)
    if not moved_batch(compared) or before.trains or after.trains:
        return
    old, new = (files_of_a_batch(run) for run in ends(compared))
    alike = old and new and abs(new - old) <= policy.FILES_OF_BATCH_TIE * old
    if alike and (before.effects.batch or 0) > 1:
        held = [run.effects.batch or 0 for run in ends(compared)]
        why = f"A file holds {held[1]:g} items, where it held {held[0]:g}."
        yield suggested("results", why)


def files_of_a_batch(run: Run) -> float | None:
    """Files that a batch leaves; None where too few were left to tell."""
    files, batch = run.files_in_window or 0, run.effects.batch
    items = min(run.units, run.whole_units)
    return (
        files * batch / items if batch and items and files >= policy.ENOUGH_FILES else None
    )


def other_counts(compared: Compared) -> Differences:
    """A number that counts batches, and by which the program computes."""
    if not moved_batch(compared):
        return
    old, new = (updates_of(run).counts for run in ends(compared))
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, 1.0), new.get(name, 1.0)
        if before != after:
            why = (
                f"`{name}` counts batches, and the program goes by it: {after:g} an update"
            )
            yield suggested("counters", f"{why}, where there were {before:g}.")
            return


def other_lengths(compared: Compared) -> Differences:
    """A loop that ends after so many batches, whatever their size."""
    if not moved_batch(compared):
        return
    before, after = ends(compared)
    old, new = limits_of(before), limits_of(after)
    batches = [run.effects.batch or 0.0 for run in ends(compared)]
    for name in sorted(old.keys() & new.keys()):
        items = [old[name] * batches[0], new[name] * batches[1]]
        left = 0.0 if not before.trains else max(batches)  # a last batch may be smaller
        if items[1] < items[0] - left or items[1] > items[0] + max(batches):
            why = f"`{name}` ends a loop after {new[name]:,.0f} batches"
            shown = f"{items[1]:,.0f} items, where there were {items[0]:,.0f}"
            yield suggested("counters", f"{why}: {shown}.")
            return


def limits_of(run: Run) -> Mapping[str, float]:
    """Batches after which the run's loops end, by condition.

    Without a loader a call of the network may be a step of a sampler or a token: only where an item
    goes through it once is it a batch.
    """
    if run.work is None or run.work.loader is not None:
        return loader_of(run).limits
    return run.work.limits if run.trains or is_called_once(run) else {}


def other_edits(compared: Compared) -> Differences:
    """Weights or gradients that the program edits more or less often in an update.

    Only with another batch: a GradScaler edits gradients too, which another precision brings along.
    Edits that equal runs make now and then follow the data.
    """
    if not moved_batch(compared):
        return
    known, new = (
        [updates_of(run).edits for run in compared.originals],
        updates_of(compared.after),
    )
    for name in sorted(new.edits):
        old = {edits.get(name) for edits in known}
        if len(old) == 1 and None not in old and new.edits[name] not in old:
            before, after = known[0][name], new.edits[name]
            edits = f"Edits of {name} outside of the optimizer: {after:g} an update"
            yield suggested("own-edits", f"{edits}, where there were {before:g}.")


def moves_of_averages(updates: UpdateWork) -> dict[str, float]:
    """Moves in an update by what moves: torch's own average, and those kept by hand."""
    found = {
        f"The copy of the weights in `{name}`": moves
        for name, moves in updates.copies.items()
    }
    of_torch = steps_of_an_update(updates.averages)
    if any(updates.averages) and of_torch is not None:
        found["The running average of the weights"] = of_torch
    return found


def ends(compared: Compared) -> tuple[Run, Run]:
    return compared.before, compared.after


def steps_of_an_update(counted: Sequence[int]) -> float | None:
    """Steps in most updates."""
    steps = [after - before for before, after in pairwise(counted)]
    return float(median(steps)) if steps else None


def other_losses(compared: Compared) -> Differences:
    """Another loss of the first updates, whose samples are as many and of one distribution.

    Told are gradients that are summed over the batches of an update, and losses that hold
    the items of a batch against each other. Both sides have the same updates, so a loss
    that falls meanwhile does so in both. Runs that repeat themselves are compared update by
    update: the hardest half of two items has nearly the mean loss of the hardest half of 32.
    """
    if not moved_batch(compared):
        return
    known = [losses_of(run) for run in (*compared.originals, compared.after)]
    if is_divided_at_the_update(compared):
        runs = (*compared.originals, compared.after)
        known = [
            [loss / (run.effects.accumulation or 1) for loss in losses]
            for run, losses in zip(runs, known, strict=True)
        ]
    size = min(map(len, known))
    if not any(known) and len(updates_of(compared.after).rates) >= policy.FEWEST_UPDATES:
        why = "No loss of an update was seen, so nothing tells whether it depends on the batch."
        yield suggested("loss-of-update", why)
    if size < policy.FEWEST_UPDATES:
        return
    *old, new = [each[:size] for each in known]
    if is_repeatable(compared, old):
        moved = distance(new, old[0])
        if moved > policy.SAME_ITEMS_TIE:
            yield suggested(
                "loss-of-update",
                f"Of the same items, the first updates' losses differ by {numbers.percent(moved)}: "
                "the loss of an update depends on its batches.",
            )
        return
    means = [fmean(each) for each in old]
    usual = [fmean(each) for each in zip(*old, strict=True)]
    error = math.sqrt((stdev(usual) ** 2 + stdev(new) ** 2) / size)
    before, after = ends(compared)
    if first_items(before, "drawn").first == first_items(after, "drawn").first != ():
        apart = [one - other for one, other in zip(new, usual, strict=True)]
        error = stdev(apart) / math.sqrt(size)  # of the same items, update by update
    chance = policy.LOSS_SIGMAS * error
    allowed = max(policy.LOSS_TIE * abs(fmean(means)), chance) + max(means) - min(means)
    if abs(fmean(new) - fmean(means)) > allowed:
        shown = f"{fmean(new):.3g} where it was {fmean(means):.3g}"
        yield suggested("loss-of-update", f"The first updates have a loss of {shown}.")


def losses_of(run: Run) -> Sequence[float]:
    return updates_of(run).losses


def mixed_losses(compared: Compared) -> Differences:
    """A loss that holds the items of a batch against each other."""
    runs = (*compared.originals, compared.after)
    if moved_batch(compared) and any(updates_of(run).mixes for run in runs):
        why = "The loss of an item depends on the others of its batch."
        yield suggested("loss-of-update", why)


def is_divided_at_the_update(compared: Compared) -> bool:
    """True if gradients of equal length come of summed losses: they are divided in between.

    The losses of an update are then as many times larger as there are batches in it.
    """
    old, new = (run.effects.accumulation or 1.0 for run in ends(compared))
    lengths = [updates_of(run).gradient for run in (*compared.originals, compared.after)]
    sums = [sum(losses_of(run)[: policy.FEWEST_UPDATES]) for run in ends(compared)]
    if max(old, new) < 2 * min(old, new) or not all(lengths) or not all(sums):
        return False
    *known, length = (float(each or 0) for each in lengths)
    alike = max(known[-1], length) < policy.GRADIENT_TIE * min(known[-1], length)
    return alike and abs(sums[1] * old / (sums[0] * new) - 1) <= policy.SUMS_TIE


def is_repeatable(compared: Compared, losses: Sequence[Sequence[float]]) -> bool:
    """True if equal runs have equal losses, and this one had the same items without other draws.

    Its losses then have to be the same: nothing but the batch is another. A single original is
    taken to repeat itself: it had the same items, and drew nothing that could differ.
    """
    runs = (*compared.originals, compared.after)
    drawn = any(loader_of(run).draws is not False for run in runs)
    came = {first_items(run, "came").first for run in runs}
    samples = [update_samples(run) or 0.0 for run in runs]
    as_many = min(samples) > 0 and max(samples) - min(samples) <= policy.SAMPLES_TIE * min(
        samples
    )
    if not losses or drawn or len(came) != 1 or came == {()} or not as_many:
        return False
    return all(distance(each, losses[0]) <= policy.EQUAL_RUNS_TIE for each in losses[1:])


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Relative difference of losses update by update, as the root of its mean square."""
    usual = fmean(map(abs, other)) or 1.0
    squares = [(a - b) ** 2 for a, b in zip(one, other, strict=False)]
    return math.sqrt(fmean(squares[: policy.FEWEST_UPDATES])) / usual


def moved_batch(compared: Compared) -> bool:
    old, new = compared.before.effects.batch, compared.after.effects.batch
    return bool(old and new and abs(new - old) > policy.SAMPLES_TIE * old)


def other_statistics(compared: Compared) -> Differences:
    """Normalisation by a batch of another size."""
    if not moved_batch(compared):
        return
    before, after = ends(compared)
    old, new = before.effects.batch or 0.0, after.effects.batch or 0.0
    if updates_of(after).batch_statistics or updates_of(before).batch_statistics:
        why = f"BatchNorm normalises by {new:g} samples at once, where it was {old:g}."
        yield suggested("batch-statistics", why)


def other_results(compared: Compared) -> Differences:
    """Another result of an inference's first item, where nothing drew random numbers."""
    before, after = ends(compared)
    if not moved_batch(compared) or before.trains or after.trains:
        return
    runs = (*compared.originals, after)
    if (
        any(loader_of(run).draws is not False for run in runs)
        or len({r.effects.dtype for r in runs}) > 1
    ):
        return
    if not any(
        first_items(before, n).first[:1] == first_items(after, n).first[:1] != ()
        for n in KINDS
    ):
        return
    results = [run.effects.outputs[0] for run in runs if run.effects.outputs]
    alike = before.effects.input_shapes == after.effects.input_shapes
    sizes = {len(each) for each in results}
    if (
        len(results) < len(runs)
        or len(sizes) != 1
        or not (alike or max(sizes) < policy.RESULT_NUMBERS)
    ):
        return
    *old, new = results
    allowed = (
        policy.RESULT_TIE * max((abs(number) for number in old[0]), default=0.0)
        + policy.RESULT_LEAST
    )
    unlike = [
        max(map(abs, map(float.__sub__, each, old[0])), default=0.0) for each in (*old, new)
    ]
    if max(unlike[:-1]) <= allowed < unlike[-1]:
        yield suggested("results", "The first item's result differs by more than rounding.")


def broken_sequence(compared: Compared) -> Differences:
    """Another order of batches, each of which begins with the state that the one before left."""
    before, after = ends(compared)
    if before.effects.carries and is_reordered(before, after):
        why = "A batch begins with the state of the one before, and workers take turns."
        yield suggested("state-of-dataset", why, of_workers=True)


def other_rows(compared: Compared) -> Differences:
    """Results of later rows that follow the others of their batch, as padded ones do.

    Items that are sorted within their batch come out in another order, and are the same.
    """
    before, after = ends(compared)
    runs = (*compared.originals, after)
    if (
        not moved_batch(compared)
        or any(run.trains or loader_of(run).draws is not False for run in runs)
        or len({run.effects.dtype for run in runs}) > 1
        or not all(is_called_once(run) for run in runs)
    ):
        return
    alike = max(shared_start(before, after, name) for name in KINDS)
    size = min(alike, *(len(run.effects.rows) for run in runs))
    *old, new = (run.effects.rows[:size] for run in runs)
    if any(unlike_rows(old[0], each) for each in old[1:]):
        return
    places = unlike_rows(old[0], new)
    if places and unlike_rows(sorted(old[0]), sorted(new)):
        why = f"Of the first {size} items {len(places)} have another result in a larger batch."
        yield suggested("results", why)


def is_called_once(run: Run) -> bool:
    """True if each item goes through the network once."""
    forwards = run.effects.forwards_per_unit
    return forwards is not None and abs(forwards - 1) < policy.ONE_CALL_TIE


def shared_start(before: Run, after: Run, name: str) -> int:
    """Items by which both runs begin alike."""
    old, new = (first_items(run, name).first for run in (before, after))
    pairs = zip(old, new, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(old), len(new)))


def unlike_rows(
    old: Sequence[Sequence[float]], new: Sequence[Sequence[float]]
) -> list[int]:
    """Places of rows as long as before whose numbers differ by more than rounding."""
    found = []
    for at, (one, other) in enumerate(zip(old, new, strict=True)):
        largest = max(map(abs, one[1:]), default=0.0)
        allowed = policy.RESULT_TIE * largest + policy.RESULT_LEAST
        pairs = zip(one[1:], other[1:], strict=False)
        if one[0] == other[0] and any(abs(a - b) > allowed for a, b in pairs):
            found.append(at)
    return found


Rule = Callable[[Compared], Differences]
RULES: tuple[Rule, ...] = (
    shared_generators,
    seeded_loop,
    unsharded,
    repeated_items,
    other_passes,
    frozen_passes,
    shorter_passes,
    updates_of_a_pass,
    other_files,
    dropped_items,
    changed_state,
    hidden_cache,
    set_by_program,
    set_by_loop,
    broken_sequence,
    other_updates,
    other_parts,
    other_rates,
    other_settings,
    other_schedule,
    other_averages,
    other_buffers,
    other_counts,
    other_lengths,
    other_edits,
    other_statistics,
    other_losses,
    mixed_losses,
    other_results,
    other_rows,
)


# What was observed, for the report


def observed(originals: Sequence[Run], after: Run) -> dict[str, str]:
    """Words on what stayed the same, by `items` and `updates`."""
    found: dict[str, str] = {}
    if not originals:
        return found
    before = originals[-1]
    if is_same_pass(before, after):
        found["items"] = f"the same {items_of_a_pass(after) or 0:g} items a pass"
    else:
        for name, words in (
            ("came", "the same items"),
            ("drawn", "same items, other draws"),
        ):
            old, new = first_items(before, name).first, first_items(after, name).first
            size = min(len(old), len(new))
            if size and set(old[:size]) == set(new[:size]):
                found["items"] = words
                break
        else:
            distinct = first_items(after, "came").distinct
            if distinct and distinct[-1] == 2 ** len(distinct):
                found["items"] = f"the first {distinct[-1]} items all differ; other draws"
    samples = update_samples(after)
    if after.step_kind in TRAINING_STEPS and samples:
        seen = after.work.updates_seen if after.work else None
        many = f", {numbers.many(seen, 'update')}" if seen else ""
        found["updates"] = f"{samples:g} samples an update{many}"
    return found
