"""Arithmetic of stretches of time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from advisor.analysis.events import Span


def merged(spans: Iterable[Sequence[float]]) -> list[Span]:
    """Merge overlapping spans, in order."""
    found: list[Span] = []
    for start, end in sorted((each[0], each[1]) for each in spans):
        if found and start < found[-1].end:
            if end > found[-1].end:
                found[-1] = Span(found[-1].start, end)
        elif end > start:
            found.append(Span(start, end))
    return found


def without(spans: Sequence[Span], taken: Sequence[Span]) -> list[Span]:
    """Time of sorted `spans` outside `taken`."""
    found = []
    position = 0
    for begin, end in spans:
        while position < len(taken) and taken[position].end <= begin:
            position += 1
        at, start = position, begin
        while at < len(taken) and taken[at].start < end:
            if taken[at].start > start:
                found.append(Span(start, taken[at].start))
            start = max(start, taken[at].end)
            at += 1
        if end > start:
            found.append(Span(start, end))
    return found


def within(spans: Sequence[Span], limits: Sequence[Span]) -> list[Span]:
    """Time of sorted `spans` inside `limits`."""
    return without(spans, without(spans, limits))


def split(spans: Sequence[Span], taken: Sequence[Span]) -> tuple[float, list[Span]]:
    """Seconds of `spans` in `taken`, and what lies outside."""
    rest = without(spans, taken)
    return seconds(spans) - seconds(rest), rest


def seconds(spans: Sequence[Span]) -> float:
    """Length of all spans together."""
    return float(sum(span.end - span.start for span in spans))


def seconds_inside(spans: Iterable[Sequence[float]], limits: Sequence[Span]) -> float:
    """Seconds of any `spans` in `limits`, each moment once."""
    return seconds(within(merged(spans), limits))
