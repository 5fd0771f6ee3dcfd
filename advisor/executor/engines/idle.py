"""Bounded wait for a quiet machine."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from advisor.machine import contention
from advisor.machine.recording import Sampler
from advisor.numbers import WORTH_SAYING

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from advisor.model import Disturbance

LOOK_S = 0.2
"""Length of the look before each process; it resolves a tenth of a CPU."""
PATIENCE_S = 5.0
"""Longest wait before one process."""
LEAST_S = 1.0
"""A wait shorter than this is not begun."""
PAUSE_S = 0.5
"""Wait between two looks."""
MOST_NAMED = 3
WORTH_A_NAME = 0.05
"""CPUs; the first `MOST_NAMED` that hold more are named."""


def look_around(seconds: float) -> Disturbance:
    """Load of other programs on CPUs and card."""
    begun = time.time()
    with Sampler(pids=[os.getpid()]) as card:
        seen = contention.look(seconds)
    return contention.on_card(seen, card.summary(begun, time.time()))


def wait_until_quiet(limit_s: float, say: Callable[[str], None], cancel: threading.Event) -> None:
    """Wait at most `limit_s` while others hold the machine, and until `cancel` is set."""
    until = time.monotonic() + min(limit_s, PATIENCE_S)
    seen = look_around(LOOK_S)
    if not seen.disturbed or limit_s < LEAST_S:
        return
    say(f"waiting for a quiet moment: {in_words(seen)}")
    while seen.disturbed and (left := until - time.monotonic()) > 0:
        if cancel.wait(min(PAUSE_S, left)):
            break
        seen = look_around(LOOK_S)
    if seen.disturbed:
        say(f"going on beside others: {in_words(seen)}")


def in_words(seen: Disturbance) -> str:
    """`others keep 1.3 CPUs busy (firefox 0.8, make 0.4)`."""
    parts = []
    if seen.others_cpus is not None:
        named = [each for each in seen.who[:MOST_NAMED] if each.cpus >= WORTH_A_NAME]
        names = ", ".join(f"{each.name} {each.cpus:.1f}" for each in named)
        parts.append(
            f"others keep {seen.others_cpus:.1f} CPUs busy{f' ({names})' if names else ''}"
        )
    if seen.steal_share and seen.steal_share >= WORTH_SAYING:
        parts.append(f"the hypervisor gives {seen.steal_share:.0%} of the CPUs' time to others")
    if seen.foreign_gpu_pids:
        parts.append(f"others' processes on the GPU: {seen.foreign_gpu_pids}")
    parts += [f"{reason} holds the GPU's clocks" for reason, _ in seen.clocks_held]
    return ", ".join(parts)
