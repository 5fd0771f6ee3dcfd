"""State of the dataset: a worker keeps its own copy, and sees no change that is made elsewhere.

Items change it (a cache, a counter), the program sets it between passes (an epoch), or the loop
over the batches does (a level of difficulty).
"""

from collections.abc import Sequence

from advisor import numbers
from advisor.model import Run
from advisor.tuner import policy
from advisor.tuner.same_work.facts import (
    Compared,
    Differences,
    is_kept,
    loader_of,
    moved_workers,
    shown,
    suggested,
)

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
            sentence = f"The dataset keeps what it loaded in `{shown(path)}`"
            kept = (
                "each worker would keep its own"
                if is_kept(after)
                else "each pass starts empty"
            )
            yield suggested(
                "cache-of-dataset", f"{sentence}; with workers {kept}.", of_workers=True
            )
        elif kind == "start" and work.iterable and is_lasting(before) != is_lasting(after):
            how = "begin" if lost else "began"
            sentence = (
                f"The dataset counts its passes in `{shown(path)}`, which workers {how} "
                "anew."
            )
            yield suggested("state-of-dataset", sentence, of_workers=True)
        elif kind == "count" or (
            kind in STATE_WORDS and alone and not work.iterable and not alike
        ):
            sentence = f"The dataset {STATE_WORDS[kind].format(shown(path))}."
            yield suggested("state-of-dataset", sentence, of_workers=True)


def changed_by_items(runs: Sequence[Run]) -> dict[str, str]:
    """State that making items changed, by kind, in whatever process makes them."""
    states = [loader_of(run).by_items for run in runs]
    states += [worker.changed for run in runs for worker in loader_of(run).workers]
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
    item_times = (run.work.items_ms for run in originals if run.work)
    for first_ms, again_ms in filter(None, item_times):
        if (
            first_ms >= policy.WORTH_KEEPING_MS
            and first_ms > policy.KEPT_IF_QUICKER * again_ms
        ):
            times = " ms and ".join(numbers.measure(ms, 2) for ms in (first_ms, again_ms))
            sentence = f"An item takes {times} ms again: what is kept would not be kept in workers."
            yield suggested("cache-of-dataset", sentence, of_workers=True)
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
            sentence = (
                f"The program changes `{shown(path)}` between passes; workers that stay miss "
                "it."
            )
            yield suggested("set-by-program", sentence, of_workers=True)
            return
    if all(len(work.passes) < 2 for work in works):
        for name in works[-1].set_around[:1]:
            sentence = (
                f"A loop around the pass sets `{name}` of its data; workers that stay miss "
                "it."
            )
            yield suggested("set-by-program", sentence, of_workers=True)


def set_by_init(compared: Compared) -> Differences:
    """State that the init function sets otherwise in each pass: workers that stay keep the first.

    Each has to be seen twice with what is no seed.
    """
    if not is_kept(compared.after) or is_kept(compared.before):
        return
    for run in compared.originals:
        by_worker: dict[tuple[int, str], set[str]] = {}
        for worker in loader_of(run).workers:
            for path, value in worker.set.items():
                by_worker.setdefault((worker.worker, path), set()).add(value)
        for (_, path), values in sorted(by_worker.items()):
            if len(values) > 1:
                sentence = f"The workers' init function sets `{shown(path)}` otherwise in each pass"
                yield suggested(
                    "set-by-program",
                    f"{sentence}; workers that stay miss it.",
                    of_workers=True,
                )
                return


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
        sentence = (
            f"The loop over the batches sets `{name}` of its data; workers {miss} it."
        )
        yield suggested("set-by-program", sentence, of_workers=True)
