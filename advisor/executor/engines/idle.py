"""Bounded wait for a quiet machine."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from advisor.machine import contention
from advisor.machine.telemetry import Sampler

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.model import Disturbance

LOOK_S = 0.2
"""Length of the look before each process; it resolves a tenth of a CPU."""
PATIENCE_S = 5.0
"""Longest wait before one process. In vain, the next one is half as long; when it helped, whole."""
LEAST_S = 1.0
"""A wait shorter than this is not begun."""
TOTAL_S = 30.0
"""Longest wait of one engine, all its processes together."""
BACKOFF = 1.5
MOST_NAMED = 3
WORTH_A_NAME = 0.05
"""CPUs; the first `MOST_NAMED` that hold more are named."""


class Patience:
    """Budget of waiting, shortened where waiting was in vain."""

    def __init__(self, total_s: float = TOTAL_S) -> None:
        self._total_s = min(total_s, TOTAL_S)
        self._next_s = PATIENCE_S
        self.waited_s = 0.0
        """In all, with the looks at a busy machine."""

    @property
    def limit_s(self) -> float:
        """Longest wait; 0 after too many vain ones."""
        limit = min(self._next_s, self._total_s - self.waited_s)
        return limit if limit >= LEAST_S else 0.0

    def learn(self, seconds: float, *, helped: bool) -> None:
        """A wait of `seconds` is over."""
        self.waited_s += seconds
        self._next_s = PATIENCE_S if helped else self._next_s / 2


def look_around(seconds: float, gpu_index: int | None = None) -> Disturbance:
    """Load of other programs on CPUs and card."""
    begun = time.time()
    with Sampler(gpu_index, pids=[os.getpid()]) as card:
        seen = contention.look(seconds)
    return contention.on_card(seen, card.summary(begun, time.time()))


def wait_until_quiet(
    patience: Patience,
    say: Callable[[str], None],
    limit_s: float = PATIENCE_S,
    *,
    look: Callable[[float], Disturbance] = look_around,
    wait: Callable[[float], object] = time.sleep,
) -> Disturbance:
    """Wait while others hold the machine.

    At most `limit_s`, or as long as `patience` has. Gives the last look. `wait` sleeps for so many
    seconds, and may return true to give up.
    """
    begun, pause = time.monotonic(), LOOK_S
    seen = look(LOOK_S)
    if not seen.disturbed:
        return seen
    limit = min(limit_s, patience.limit_s)
    until, given_up = begun + limit, False
    if limit:
        say(f"waiting for a quiet moment: {in_words(seen)}")
    while seen.disturbed and not given_up and (left := until - time.monotonic()) > 0:
        pause *= BACKOFF
        given_up = bool(wait(min(pause, left)))
        seen = look(LOOK_S)
    patience.learn(time.monotonic() - begun, helped=not seen.disturbed)
    if limit and seen.disturbed:
        say(f"going on beside others: {in_words(seen)}")
    return seen


def in_words(seen: Disturbance) -> str:
    """`others keep 1.3 CPUs busy (firefox 0.8, make 0.4)`."""
    parts = []
    if seen.others_cpus is not None:
        named = [each for each in seen.who[:MOST_NAMED] if each.cpus >= WORTH_A_NAME]
        names = ", ".join(f"{each.name} {each.cpus:.1f}" for each in named)
        parts.append(
            f"others keep {seen.others_cpus:.1f} CPUs busy{f' ({names})' if names else ''}"
        )
    if seen.steal_share:
        parts.append(f"the hypervisor gives {seen.steal_share:.0%} of the CPUs' time to others")
    if seen.foreign_gpu_pids:
        parts.append(f"others' processes on the GPU: {seen.foreign_gpu_pids}")
    parts += [f"{reason} holds the GPU's clocks" for reason, _ in seen.clocks_held]
    return ", ".join(parts)
