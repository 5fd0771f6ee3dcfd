"""What a candidate no longer produces, or otherwise: compared with the original's by item."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from advisor.model import TRAINING_STEPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.model import ResultFile, Run
    from advisor.tuner.facts import Data

FEWER = 0.5
"""Of the files or items that were expected: some of the last ones may still be on their way."""
A_FILE_EACH = 0.5
"""Files an item from which on a program is one that writes its results item by item."""
ENOUGH = 4.0
"""Files or items that must be expected before their number tells anything."""
BUFFER_BYTES = 16384
"""Of a file: what the program had not handed over yet when it was ended."""
RELATIVE, ABSOLUTE = 1e-2, 1e-3
"""Two numbers that differ by no more are equal but for rounding."""
STRAYS = 0.05
"""Of the samples of a picture or an array: where a threshold cut it, rounding moves edges."""


def lost(originals: Sequence[Run], after: Run) -> Data:
    """What `after` does not produce as the originals do, as the reason to stop; empty if nothing.

    In training a smaller last batch that is left out comes back in another epoch, and files are
    checkpoints; in inference both are results.
    """
    if after.step_kind in TRAINING_STEPS:
        return ()
    before = originals[-1]
    return (
        _left_out(before, after)
        or _fewer_files(before, after)
        or _fewer_items(before, after)
        or _other_items(originals, after)
    )


def _left_out(before: Run, after: Run) -> Data:
    was, now = before.effects.left_out, after.effects.left_out
    batch = after.effects.batch
    if now and was is not None and now > was and batch:
        told = (("batch", batch), ("left_out", now), ("left_out_before", was))
        return (("stop", "left-out"), *told)
    return ()


def _fewer_files(before: Run, after: Run) -> Data:
    files, expected = after.files_in_window, files_expected(before, after)
    if files is None or expected is None or files > expected * FEWER:
        return ()
    return (("stop", "fewer-files"), ("files", files), ("expected", expected))


def files_expected(before: Run, after: Run) -> float | None:
    """Files that as many finished items as `after`'s left in `before`; None where items leave
    none of their own, or too few were finished to tell."""
    files, items = before.files_in_window, in_window(before)
    if not files or not items or files / items < A_FILE_EACH:
        return None
    expected = files / items * in_window(after)
    return expected if expected >= ENOUGH else None


def in_window(run: Run) -> float:
    """Items that were finished inside of the window: before it, too, some were; and of a sampler
    the window may hold a part of one."""
    return min(run.units, run.whole_units)


def _fewer_items(before: Run, after: Run) -> Data:
    """Lines, rows or entries: with what may still lie in a buffer, not half of what was. A file
    that holds less than an entry a batch does not grow with the work."""
    if not before.whole_units or (before.files_in_window or 0) >= A_FILE_EACH * in_window(before):
        return ()
    batches = before.whole_units / (before.effects.batch or 1.0)
    for was, now in _alike(before.results, after.results):
        if was.items < A_FILE_EACH * batches:
            continue
        expected = was.items / before.whole_units * after.whole_units
        buffered = BUFFER_BYTES * was.items / was.size_bytes
        if expected >= ENOUGH and now.items + buffered < expected * FEWER:
            told = (("file", now.path), ("items", now.items), ("expected", expected))
            return (("stop", "fewer-items"), *told)
    return ()


def _other_items(originals: Sequence[Run], after: Run) -> Data:
    """The first item that is another one; not where two originals differ from each other."""
    if len(originals) < 2:
        return ()
    unsteady = {
        was.path
        for one in originals[:-1]
        for was, other in _alike(originals[-1].results, one.results)
        if first_difference(was, other) is not None
    }
    for was, now in _alike(originals[-1].results, after.results):
        number = None if was.path in unsteady else first_difference(was, now)
        if number is not None:
            return (("stop", "other-items"), ("file", now.path), ("item", number + 1))
    return ()


def _alike(
    some: Sequence[ResultFile], others: Sequence[ResultFile]
) -> list[tuple[ResultFile, ResultFile]]:
    """Pairs of one path; a single file of its kind may have a name of its own (a time stamp)."""
    pairs = [(one, other) for one in some for other in others if one.path == other.path]
    if pairs or len(some) != 1 or len(others) != 1:
        return pairs
    kinds = {each.path.rpartition(".")[2] for each in (*some, *others)}
    return [(some[0], others[0])] if len(kinds) == 1 else []


def first_difference(was: ResultFile, now: ResultFile) -> int | None:
    """Index of the first item that differs beyond rounding; None if none of the first ones does."""
    strays = STRAYS if was.sampled else 0.0
    pairs = zip(was.first, now.first, strict=False)
    return next((n for n, (one, other) in enumerate(pairs) if not _same(one, other, strays)), None)


def unread(originals: Sequence[Run], runs: Sequence[Run]) -> tuple[str, ...]:
    """Files that the originals agree on and `runs` have otherwise, in formats whose content cannot
    be compared: it may be rounding, or something else."""
    if len(originals) < 2:
        return ()
    digests = [{f.path: f.digest for f in run.results if f.digest} for run in originals]
    steady = {path for path, one in digests[-1].items() if all(d.get(path) == one for d in digests)}
    differ = {
        file.path
        for run in runs
        for file in run.results
        if file.path in steady and file.digest not in {None, digests[-1][file.path]}
    }
    return tuple(sorted(differ))


def _same(one: Sequence[float | str], other: Sequence[float | str], strays: float) -> bool:
    """Texts and lengths are equal, and all numbers but a share of `strays` are close."""
    if len(one) != len(other):
        return False
    apart = 0
    for a, b in zip(one, other, strict=True):
        if isinstance(a, float) and isinstance(b, float):
            apart += not math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
        elif a != b:
            return False
    return apart <= strays * len(one)
