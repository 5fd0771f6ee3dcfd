"""Where the time of a window goes when a device works beside the host: what the device did, and
what it waited for.

Each mark of the device's clock says: all that was queued until then was done at that moment. So
between a mark and its moment the device surely worked. It surely worked, too, through a call of the
model at whose end it was behind, and while the host waited for it. In the rest of the time it had
nothing, or no more than what the host was just queueing: that goes to what the host did then.
"""

from __future__ import annotations

import bisect
from typing import Any, Sequence, Tuple

Span = Tuple[Any, ...]
"""(from, to, ...) in seconds of perf_counter."""

BEHIND_S, BEHIND_SHARE = 1e-4, 0.05
"""The device is behind at a call's end by more than this, and this share of the call: else it
only keeps up with the launches."""
NEAR_S = 0.001
"""A mark so close to a call's end tells of it."""
WAITED_S = 5e-5
"""A shorter wait for the device is the price of asking."""
ASKED = 0.02
"""Share of the time that the host must have waited for the device, before that can be what keeps
it from queueing ahead."""


class Host:
    """What the host did in a window: spans, none of which overlaps another of its kind."""

    def __init__(
        self,
        fetches: Sequence[Span],
        calls: Sequence[Span],
        copies: Sequence[Span],
        waits: Sequence[Span],
    ) -> None:
        self.fetches = fetches
        """In the loader."""
        self.calls = calls
        """In the model's forwards, backwards and updates."""
        self.copies = copies
        """Copying to the device, and waiting until that was done."""
        self.waits = waits
        """Waiting for numbers from the device, or for the device itself."""


def shares(
    host: Host, marks: Sequence[tuple[float, float]], within: list[Span]
) -> dict[str, float]:
    """Parts of the time `within`; they add up to 1. `marks`: see `DeviceClock.marks`.

    compute: the device worked. data_wait, host_to_device, launch, other: it had nothing to do while
    the host waited for the loader, copied, queued its small kernels, ran other code. sync: of the
    last three what would go if the host never waited, as it then could queue ahead.
    """
    total = _seconds(within)
    if total <= 0:
        return {}
    calls = merged(host.calls)
    waits = merged([wait for wait in host.waits if wait[1] - wait[0] > WAITED_S])
    busy = merged([*marks, *_behind(calls, marks), *_untold(waits, calls, marks)])
    seconds: dict[str, float] = {}
    left = within
    for name, spans in (
        ("compute", busy),
        ("data_wait", merged(host.fetches)),
        ("host_to_device", merged(host.copies)),
        ("launch", calls),
    ):
        seconds[name], left = split(left, spans)
    seconds["other"] = _seconds(left)
    worked = without(within, without(within, busy))
    held = {"sync": _inside(waits, within), "host_to_device": _inside(host.copies, worked)}
    _move_lost(seconds, held, total)
    return {name: part / total for name, part in seconds.items()}


def _move_lost(seconds: dict[str, float], held: dict[str, float], total: float) -> None:
    """What was lost because the host waited instead of queueing ahead goes to what it waited for.

    Without those waits a step would take as long as the device works or the host does, whichever
    is longer.
    """
    waited = sum(held.values())
    seconds["sync"] = 0.0
    if waited < ASKED * total:
        return
    idle = {name: seconds[name] for name in ("launch", "other")}
    lost = total - max(seconds["compute"], total - waited)
    lost = min(max(0.0, lost), sum(idle.values()))
    if lost <= 0:
        return
    for name, part in idle.items():
        seconds[name] -= lost * part / sum(idle.values())
    for name, part in held.items():
        seconds[name] += lost * part / waited


def _behind(calls: Sequence[Span], marks: Sequence[tuple[float, float]]) -> list[Span]:
    """Calls at whose end the device still had work of them: it was busy from their begin on."""
    hosts = [host for host, _ in marks]
    found = []
    for start, end in calls:
        low = bisect.bisect_left(hosts, end - NEAR_S)
        high = bisect.bisect_right(hosts, end + NEAR_S)
        lag = max((done - max(end, host) for host, done in marks[low:high]), default=0.0)
        if lag > max(BEHIND_S, BEHIND_SHARE * (end - start)):
            found.append((start, end))
    return found


def _untold(
    waits: Sequence[Span], calls: Sequence[Span], marks: Sequence[tuple[float, float]]
) -> list[Span]:
    """Waits for work that no mark tells the end of; where one does, it says so better than the
    host, which may hear of it late. A mark that came before the last call ended knows nothing of
    what that call queued."""
    hosts, ends = [host for host, _ in marks], [end for _, end in calls]
    found = []
    for start, end in waits:
        mark = bisect.bisect_right(hosts, start) - 1
        call = bisect.bisect_right(ends, start) - 1
        if mark < 0 or (call >= 0 and ends[call] > hosts[mark]):
            found.append((start, end))
    return found


# --- spans --------------------------------------------------------------------------------


def merged(spans: Sequence[Span]) -> list[Span]:
    """The same time in order, without overlaps; what only touches stays apart."""
    found: list[Span] = []
    for start, end, *_ in sorted(spans):
        if found and start < found[-1][1]:
            if end > found[-1][1]:
                found[-1] = (found[-1][0], end)
        elif end > start:
            found.append((start, end))
    return found


def without(spans: Sequence[Span], taken: Sequence[Span]) -> list[Span]:
    """What of `spans` lies outside `taken`; both in order and without overlaps."""
    found = []
    position = 0
    for begin, end in spans:
        while position < len(taken) and taken[position][1] <= begin:
            position += 1
        at, start = position, begin
        while at < len(taken) and taken[at][0] < end:
            if taken[at][0] > start:
                found.append((start, taken[at][0]))
            start = max(start, taken[at][1])
            at += 1
        if end > start:
            found.append((start, end))
    return found


def split(spans: Sequence[Span], taken: Sequence[Span]) -> tuple[float, list[Span]]:
    """Seconds of `spans` that lie in `taken`, and what lies outside; both in order and without
    overlaps."""
    rest = without(spans, taken)
    return _seconds(spans) - _seconds(rest), rest


def _seconds(spans: Sequence[Span]) -> float:
    return float(sum(end - start for start, end in spans))


def _inside(spans: Sequence[Span], within: Sequence[Span]) -> float:
    """Seconds of `spans` in `within`, which is in order and without overlaps."""
    spans = merged(spans)
    return _seconds(spans) - _seconds(without(spans, within))
