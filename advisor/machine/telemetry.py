"""Sampling thread for GPUs in the parent."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Self

import psutil

from advisor.machine import cards
from advisor.machine.gpu import open_readers
from advisor.machine.recording import Recording, Sample
from advisor.model import Card, Telemetry

SLOW_INTERVAL_S = 1.0
"""Between readings that take long: the processes."""


class Sampler:
    """Sampler of GPUs from start to stop.

        with Sampler(pids=[child.pid]) as sampler:
            ...
        telemetry = sampler.summary(run.window_start, run.window_end)

    Every GPU that `environ` shows a program is watched: which of them it computes on is known once
    it did. `pids` are the roots of the watched program: their process
    groups and descendants are its own, every other process on the GPU is foreign. Nothing raises
    for want of a GPU.
    """

    def __init__(
        self,
        pids: Sequence[int],
        interval_s: float = 0.1,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._readers, self._no_gpu = open_readers(environ)
        self._owner = _Owner(pids)
        self._interval_s = interval_s
        self._samples: list[list[Sample]] = [[] for _ in range(max(1, len(self._readers)))]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop after a last sample."""
        self._stopping.set()
        self._thread.join()

    def recording(self, position: int = 0) -> Recording:
        """Recording of one visible GPU so far."""
        gaps = self._readers[position].gaps if self._readers else {}
        return Recording(
            samples=tuple(self._samples[position]),
            no_gpu=self._no_gpu,
            gaps=tuple(sorted(gaps.items())),
        )

    def summary(
        self, window_start: float, window_end: float, used: Sequence[Card] = ()
    ) -> Telemetry:
        """Summarise a window of the used cards.

        Without that knowledge it covers the first card.
        """
        each = cards.positions([reader.uuid for reader in self._readers], used) or [0]
        return cards.merged([self.recording(n).summary(window_start, window_end) for n in each])

    def _run(self) -> None:
        slow_due = tick = time.monotonic()
        stopping = False
        while not stopping:
            slow = time.monotonic() >= slow_due
            if slow:
                slow_due = time.monotonic() + SLOW_INTERVAL_S
            self._look(slow=slow)
            tick = max(tick + self._interval_s, time.monotonic())
            stopping = self._stopping.wait(tick - time.monotonic())
        self._look(slow=True)

    def _look(self, *, slow: bool) -> None:
        """Sample each GPU."""
        for reader, samples in zip(self._readers, self._samples, strict=False):
            now, gpu = time.time(), reader.sample(slow=slow)
            own, hidden = self._owner.split([process.pid for process in gpu.processes or ()])
            sample = Sample(time=now, gpu=gpu, own_pids=own, hidden_pids=hidden)
            samples.append(sample)


class _Owner:
    """Tells the watched program's processes from others'."""

    def __init__(self, roots: Sequence[int]) -> None:
        self.roots = set(roots)
        self._own: set[int] = set()

    def split(self, pids: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Split `pids` into ours and unknown namespaces."""
        self._own |= {pid for pid in pids if pid not in self._own and self._is_ours(pid)}
        hidden = (pid for pid in pids if pid not in self._own and not psutil.pid_exists(pid))
        return tuple(pid for pid in pids if pid in self._own), tuple(hidden)

    def _is_ours(self, pid: int) -> bool:
        if pid in self.roots:
            return True
        with contextlib.suppress(OSError):
            if os.getpgid(pid) in self.roots:
                return True
        with contextlib.suppress(psutil.Error):
            return any(parent.pid in self.roots for parent in psutil.Process(pid).parents())
        return False
