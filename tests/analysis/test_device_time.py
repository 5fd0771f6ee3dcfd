"""What a device did, told from marks in its stream and what its host did: a step by hand."""

from __future__ import annotations

import pytest

from advisor.analysis.device_time import DeviceClock, Host, seconds
from advisor.analysis.events import DeviceMark, Span


def shares(
    host: Host, marks: list[tuple[float, float]], within: list[tuple[float, float]]
) -> dict[str, float]:
    """Parts of the time `within`; they add up to 1."""
    as_spans = Host(*([Span(*each) for each in kind] for kind in host))
    found = seconds(
        as_spans, DeviceClock([DeviceMark(*m) for m in marks]), [], [Span(*w) for w in within]
    )
    total = sum(found.values())
    assert total == pytest.approx(sum(end - start for start, end in within))
    return {name: part / total for name, part in found.items()}


def steps(
    count: int, *, fetch: float, call: float, kernel: float, marked: bool
) -> tuple[Host, list[tuple[float, float]], float]:
    """A loop of seconds each: fetch, a mark, a call that queues the kernel, a wait for it.

    `marked`: the call's end has a mark of its own, which is left out where it comes soon after the
    one before.
    """
    fetches, calls, waits, marks = [], [], [], []
    now = 0.0
    for _ in range(count):
        marks.append((now, now))
        fetches.append((now, now + fetch))
        now += fetch
        calls.append((now, now + call))
        done = now + kernel
        now += call
        if marked:
            marks.append((now, done))
        waits.append((now, done))
        now = done
    return Host(fetches, calls, [], waits), marks, now


@pytest.mark.parametrize(
    ("call", "marked"), [(3e-4, True), (3e-4, False), (8e-4, False), (5e-3, True)]
)
def test_a_device_that_is_waited_for_works(call: float, marked: bool) -> None:
    """However soon the call follows the last mark: one model launches for milliseconds, another
    queues all of its work at once."""
    host, marks, end = steps(10, fetch=1e-4, call=call, kernel=0.06, marked=marked)
    found = shares(host, marks, [(0.0, end)])
    assert found["compute"] > 0.9
    assert found["sync"] < 0.05


def test_what_was_copied_before_the_window_is_none_of_it() -> None:
    """A blocking copy waits for the step before: 24 ms of 76, in which the host could have done its
    own 52. How many steps the warm-up had makes no difference."""
    found = []
    for warm in (0, 5, 50):
        copies, calls, marks, now = [], [], [], 0.0
        for _ in range(warm + 8):
            calls.append((now + 0.052, now + 0.0525))
            marks.append((now + 0.0525, now + 0.076))
            copies.append((now + 0.0526, now + 0.076))
            now += 0.076
        window = [(warm * 0.076, now)]
        found.append(shares(Host([], calls, copies, []), marks, window))
    for each in found:
        assert each == pytest.approx(found[0])
        assert each["host_to_device"] == pytest.approx(24 / 76, abs=0.02)
        assert each["other"] == pytest.approx(28 / 76, abs=0.02)


def test_a_copy_that_the_device_makes_itself_is_no_compute() -> None:
    """Queued without a wait, it takes 20 ms of each 50 ms that the device was busy."""
    marks = [DeviceMark(0.1 * n, 0.1 * n + 0.05) for n in range(10)]
    copies = [Span(0.1 * n, 0.1 * n + 0.02) for n in range(10)]
    found = seconds(Host([], [], [], []), DeviceClock(marks), copies, [Span(0.0, 1.0)])
    assert found["compute"] == pytest.approx(0.3)
    assert found["host_to_device"] == pytest.approx(0.2)
