"""Comparison of a candidate's results with the original's.

A batch that looks faster may leave items out, or compute others. Files are compared by their
number, their entries and the first of these, and only where runs of the original itself agree.
Limits below are judgement: they tell rounding and unflushed buffers from work that was not done.
"""

import math
from collections.abc import Sequence

from advisor.model import TRAINING_STEPS, ResultFile, Run
from advisor.tuner import policy


def output_regression(originals: Sequence[Run], after: Run) -> str:
    """Sentence on lost or changed results of an inference; empty if none.

    A training draws what it drops in another epoch; its files are checkpoints.
    """
    if after.step_kind in TRAINING_STEPS:
        return ""
    before = originals[-1]
    return (
        _left_out(before, after)
        or _fewer_files(before, after)
        or _fewer_items(before, after)
        or _other_items(originals, after)
    )


def _left_out(before: Run, after: Run) -> str:
    old, new, batch = before.effects.left_out, after.effects.left_out, after.effects.batch
    if not new or old is None or new <= old or not batch:
        return ""
    return (
        f"In batches of {batch:g} the loader drops {new} samples of a pass (drop_last), where it "
        f"dropped {old}."
    )


def _fewer_files(before: Run, after: Run) -> str:
    """Find fewer files than scaled from `before`, if items leave their own."""
    files, items = before.files_in_window, in_window(before)
    files_left = after.files_in_window
    if files_left is None or not files or not items or files / items < policy.FILES_AN_ITEM:
        return ""
    expected = files / items * in_window(after)
    if expected < policy.ENOUGH_FILES or files_left > expected * policy.FEWEST_FILES_SHARE:
        return ""
    return (
        f"The program left {files_left} files where as many items left {expected:.0f}: results "
        "would be lost."
    )


def in_window(run: Run) -> float:
    """Whole items finished inside the window."""
    return min(run.units, run.whole_units)


def _fewer_items(before: Run, after: Run) -> str:
    """Find files with too few entries, buffered ones counted."""
    if not before.whole_units or (
        before.files_in_window or 0
    ) >= policy.FILES_AN_ITEM * in_window(before):
        return ""
    data = after.effects.data_items
    if data and after.whole_units > data:
        return ""  # each pass may begin its files anew
    for old, new in _alike(before.results, after.results):
        if old.items < policy.FILES_AN_ITEM * before.whole_units:
            continue
        expected = old.items / before.whole_units * after.whole_units
        buffered = policy.UNFLUSHED_BYTES * old.items / old.size_bytes
        if (
            expected >= policy.ENOUGH_FILES
            and new.items + buffered < expected * policy.FEWEST_FILES_SHARE
        ):
            return (
                f"{new.path} held {new.items} items where as much work left {expected:.0f}: "
                "results would be lost."
            )
    return ""


def _other_items(originals: Sequence[Run], after: Run) -> str:
    """Find the first differing item of files on which the originals agree."""
    if len(originals) < 2:
        return ""
    unsteady = {
        old.path
        for one in originals[:-1]
        for old, other in _alike(originals[-1].results, one.results)
        if first_difference(old, other) is not None
    }
    for old, new in _alike(originals[-1].results, after.results):
        number = first_difference(old, new)
        if number is not None and old.path not in unsteady:
            return (
                f"Item {number + 1} of {new.path} differs from the original's by more than "
                "rounding: results would change."
            )
    return ""


def _alike(
    some: Sequence[ResultFile], others: Sequence[ResultFile]
) -> list[tuple[ResultFile, ResultFile]]:
    """Pairs of files with one path, or single ones of one kind."""
    pairs = [(one, other) for one in some for other in others if one.path == other.path]
    if pairs or len(some) != 1 or len(others) != 1:
        return pairs
    kinds = {file.path.rpartition(".")[2] for file in (*some, *others)}
    return [(some[0], others[0])] if len(kinds) == 1 else []


def first_difference(old: ResultFile, new: ResultFile) -> int | None:
    strays = policy.STRAY_SAMPLES_SHARE if old.sampled else 0.0
    pairs = zip(old.first, new.first, strict=False)
    return next(
        (n for n, (one, other) in enumerate(pairs) if not _same(one, other, strays)), None
    )


def unread(originals: Sequence[Run], runs: Sequence[Run]) -> tuple[str, ...]:
    """Changed files in formats that cannot be compared."""
    if len(originals) < 2:
        return ()
    digests = [{f.path: f.digest for f in run.results if f.digest} for run in originals]
    steady = {
        path
        for path, one in digests[-1].items()
        if all(d.get(path) == one for d in digests)
    }
    differ = {
        file.path
        for run in runs
        for file in run.results
        if file.path in steady and file.digest not in {None, digests[-1][file.path]}
    }
    return tuple(sorted(differ))


def _same(one: Sequence[float | str], other: Sequence[float | str], strays: float) -> bool:
    """True if texts are equal and all numbers but `strays` are close."""
    if len(one) != len(other):
        return False
    apart = 0
    for a, b in zip(one, other, strict=True):
        if isinstance(a, float) and isinstance(b, float):
            apart += not math.isclose(
                a, b, rel_tol=policy.ROUNDING_RELATIVE, abs_tol=policy.ROUNDING_ABSOLUTE
            )
        elif a != b:
            return False
    return apart <= strays * len(one)
