"""Device time: completion times, work and waits beside the host.

The host queues work and runs ahead, so its own clock says when work was asked for and not when
it was done. A mark (a CUDA event of the probe) gives for one moment of the host the time at which
the device had done all that was queued by then.

Three things show that the device worked:

    between a mark's moment and its completion      it was busy with what was queued
    inside a call at whose end it was behind        more was queued than it had done
    while the host waited for it                    until its work was done, not until the host woke

In all other time it can only have done what the host was just queueing. That time is told as what
the host did then: launching kernels, copying, or other code.

The second sign has a catch. A host that others hold up inside a call leaves the device idle, and
still queues more at the call's end than is done at once. But equal calls have equal work, so the
quickest of them bounds the work of all, and a held-up call cannot pass for a busy device.
"""

import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from advisor.analysis import events
from advisor.analysis.events import DeviceMark, EventLog, Span
from advisor.model import Shares

# By judgement: a little above what a mark or a wait costs by itself.
SAME_S = 1e-6
"""A mark and a step's end so close are one moment."""
BEHIND_S, BEHIND_SHARE = 1e-4, 0.05
"""The device is behind at a call's end by more than this, and this share of the call."""
NEAR_S = 0.001
"""Largest gap in seconds between a call's end and its mark.

Judgement: smaller loses marks that a busy host made late, larger takes the next call's for this
one's."""
WAITED_S = 5e-5
"""A wait for the device of fewer seconds is the price of asking.

Judgement: smaller counts each `.item()` of an idle card as a wait, larger leaves out real waits of
short steps."""
ASKED = 0.02
"""Least share of time in waits that can keep the host from queueing ahead.

Judgement: smaller blames waits for the host's own slowness, larger calls a loop with an `.item()`
in each step launch-bound."""


class DeviceClock:
    """Map of host times to device completion times, by CUDA events."""

    def __init__(self, marks: Sequence[DeviceMark]) -> None:
        self.marks = marks
        self._hosts = [mark.host for mark in marks]

    def done(self, host: float) -> float:
        """Completion time of all work queued by `host`; `host` itself before the first mark.

        By the latest mark at or before it: what was queued after that mark is not included, so
        the true time may be later and never earlier.
        """
        at = bisect.bisect_right(self._hosts, host + SAME_S) - 1
        return host if at < 0 else max(host, self.marks[at].done)

    def is_marked(self, host: float) -> bool:
        at = bisect.bisect_right(self._hosts, host + SAME_S) - 1
        return at >= 0 and host - self._hosts[at] <= SAME_S

    def is_behind(self, call: Span) -> bool:
        """Return True if the device had work left at a call's end."""
        queued = call.end + NEAR_S
        left_s = self.done(queued) - queued
        return left_s > max(BEHIND_S, BEHIND_SHARE * (call.end - call.start))

    def took(self, call: Span) -> float:
        """Seconds from when the device could begin a call until it was done: at least its work."""
        return self.done(call.end + NEAR_S) - max(call.start, self.done(call.start))

    def worked(self, calls: Sequence[Span]) -> Iterator[Span]:
        """Ends of equal calls in which the device surely worked.

        Each had the same work, which the quickest of them bounds. What was done after a call
        is known by its mark.
        """
        behind = [call for call in calls if self.is_behind(call)]
        least_s = min(map(self.took, behind), default=0.0)
        for call in behind:
            left_s = self.done(call.end + NEAR_S) - call.end
            inside_s = min(call.end - call.start, max(0.0, least_s - left_s))
            yield Span(call.end - inside_s, call.end)

    def waited(self, wait: Span) -> Span:
        """Wait for the device, to the end of its work; the host may have woken later."""
        if not self.is_marked(wait.start):
            return wait
        return Span(wait.start, min(wait.end, self.done(wait.start)))


def seconds(
    log: EventLog, fetches: Sequence[Span], clock: DeviceClock, within: list[Span]
) -> dict[str, float]:
    """Device seconds of `within`, by kind of work; the `fetches` lie outside of it.

    compute: the device worked. exchange: it waited for other ranks, where that was timed.
    host_to_device: it copied, or idled while the host copied.
    launch, other: it idled while the host queued kernels, ran other code.
    sync: the idle time that would go if the host never waited, and so queued ahead.
    A moment that several kinds claim goes to the first of them in this order.
    """
    total = events.seconds(within)
    passes = events.merged([*log.calls, *log.passes])
    nested = events.merged([*passes, *fetches])
    calls = events.merged([*passes, *events.without(events.merged(log.updates), nested)])
    spans = [Span(wait.start, wait.end) for wait in log.waits]
    waits = events.merged([wait for wait in spans if wait.end - wait.start > WAITED_S])
    copied = events.merged(log.device_copies)
    behind = [span for alike in _equal_calls(log, fetches) for span in clock.worked(alike)]
    waited = map(clock.waited, waits)
    exchanges = events.merged(log.exchanges)
    copying = events.merged([*copied, *exchanges])
    busy = events.without(events.merged([*clock.marks, *behind, *waited]), copying)
    copies = events.merged([*log.copies, *copied])
    kinds = {"compute": busy, **({"exchange": exchanges} if exchanges else {})}
    kinds |= {"host_to_device": copies, "launch": calls}
    seconds_by_kind: dict[str, float] = {}
    left = within
    for name, taken in kinds.items():
        seconds_by_kind[name], left = events.split(left, taken)
    seconds_by_kind["other"] = events.seconds(left)
    delays = {
        "sync": events.seconds_inside(waits, within),
        "host_to_device": events.seconds_inside(log.copies, events.within(within, busy)),
    }
    _move_lost_to_waits(seconds_by_kind, delays, total)
    return seconds_by_kind


REFUTED = 0.02
"""NVML's figure is of samples: a share of computing that passes it by less agrees with it.

Judgement: too small moves a share by what samples miss, too large leaves one that NVML refutes."""


def held_against(shares: Shares, util_pct: float | None) -> Shares:
    """Shares in which the card computed no longer than NVML saw it at work.

    NVML takes a moment with any kernel for one of work, so it says too much and never too
    little. What it refutes was idle while the host launched.
    """
    compute, launch = shares.compute, shares.launch
    if compute is None or launch is None or util_pct is None:
        return shares
    excess = compute - util_pct / 100
    if excess <= REFUTED:
        return shares
    return replace(shares, compute=compute - excess, launch=launch + excess)


def _equal_calls(log: EventLog, fetches: Sequence[Span]) -> Iterable[list[Span]]:
    """Calls that queue the same work each time; what nests in an update is none of its own."""
    alike: dict[object, list[Span]] = {}
    for call in log.calls:
        alike.setdefault((call.module, call.items), []).append(Span(call.start, call.end))
    nested = events.merged([*log.calls, *log.passes, *fetches])
    yield from alike.values()
    yield [Span(backward.start, backward.end) for backward in log.passes]
    yield events.without(events.merged(log.updates), nested)


def _move_lost_to_waits(
    seconds_by_kind: dict[str, float], delays: dict[str, float], total: float
) -> None:
    """Move idle time out of `launch` and `other` that waits and blocking copies have caused.

    A loop with an `.item()` in each step lets the device run dry: it idles while the host queues
    the next step, which would be told as slow launching. Without the wait the host would queue
    that step while the device computes the last one, and a step would take as long as the slower
    of both. What a step takes beyond that is the price of the waits, divided by their length.

    `seconds_by_kind` is changed in place; `delays`: host's seconds of waits by kind; `total`: all
    seconds.
    """
    waited = sum(delays.values())
    idle = {name: seconds_by_kind[name] for name in ("launch", "other")}
    worked = seconds_by_kind["compute"] + seconds_by_kind.get("exchange", 0.0)
    lost = min(total - max(worked, total - waited), sum(idle.values()))
    seconds_by_kind["sync"] = 0.0
    if waited < ASKED * total or lost <= 0:
        return
    for name, part in idle.items():
        seconds_by_kind[name] -= lost * part / sum(idle.values())
    for name, part in delays.items():
        seconds_by_kind[name] += lost * part / waited
