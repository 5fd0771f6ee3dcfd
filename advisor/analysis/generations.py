"""Generations: calls of a network that together write one batch of sequences.

A forward writes one token for each row, and the rows of a batch go on until the longest is
done. Rows of forwards are therefore no finished work: a larger batch has more of them and may
finish fewer prompts. What a call was given tells where a generation begins:

    prefill      the prompt goes in whole, every later token alone: lengths 12 1 1 1 12 1 1
    growth       without a cache, or by its mask, each call is longer by one: 12 13 14 12 13
    position     single tokens whose position grows by one, and begins anew. The row at which a
                 slice begins in an array is none: single items that are taken from it, one by
                 one, are items

A generation is finished once the next one begins, or the program ends.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

from advisor.analysis.events import ForwardCall
from advisor.analysis.step_series import most_common
from advisor.probe.recorder import LENGTH, ROW

# By judgement: a share and not all, as a generation may be cut off or begin in between.
FEWEST_TOKENS = 4
"""Fewest calls that go on with a sequence."""
REGULAR = 0.6
"""Least share of calls that go on as the kind says: others begin anew."""


def starts(given: Sequence[Mapping[str, float]]) -> list[int] | None:
    """Calls that begin a generation, the first one included; None without a sign.

    `given`: numbers and lengths of each call's arguments. With no more than the first call
    a generation is under way whose end has not come.
    """
    series = {name: [call[name] for call in given] for name in _named_in_all(given)}
    lengths = {name: values for name, values in series.items() if name.endswith(LENGTH)}
    for values in lengths.values():
        if (begun := _prefills(values)) is not None:
            return begun
    for values in lengths.values():
        if (begun := _growths(values)) is not None:
            return begun
    if any(most_common(values) == 1.0 for values in lengths.values()):
        for name, values in series.items():
            if not name.endswith((LENGTH, ROW)) and (begun := _growths(values)) is not None:
                return begun
    return None


def _named_in_all(given: Sequence[Mapping[str, float]]) -> Iterator[str]:
    for name in given[0] if given else ():
        if all(name in call for call in given):
            yield name


def _prefills(lengths: Sequence[float]) -> list[int] | None:
    """Calls longer than one position behind those of one; None unless most are of one."""
    singles = sum(length == 1 for length in lengths)
    prefills = [
        place
        for place, length in enumerate(lengths)
        if length > 1 and (place == 0 or lengths[place - 1] == 1)
    ]
    if singles < FEWEST_TOKENS or not prefills or singles < len(prefills):
        return None
    return prefills


def _growths(values: Sequence[float]) -> list[int] | None:
    """Calls that do not go on by the usual step of one."""
    steps = [after - before for before, after in pairwise(values)]
    regular = sum(step == 1 for step in steps)
    if regular < max(FEWEST_TOKENS, REGULAR * len(steps)):
        return None
    return [0, *(place for place, step in enumerate(steps, 1) if step != 1)]


def sequences_of(calls: Sequence[ForwardCall]) -> float:
    """Sequences that one generation writes: the rows of its first call.

    Later calls may have more rows, of beams, or fewer, once some are done. Prompts that went
    in one after the other and go on together are all of them.
    """
    together = most_common([call.items for call in calls]) or 1.0
    sums = list(accumulate(call.items for call in calls))
    one_by_one = together in sums and calls[0].items < together
    return together if one_by_one else calls[0].items
