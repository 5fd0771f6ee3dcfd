"""Probe cost: what the hooks add to a training step, on and off by turns in one process.

    taskset -c 1 python -m benchmarks.probe_overhead [--device cuda] [--rounds 8] [--json]

On a CPU the time of the thread counts, and the quickest tenth of the steps is told too. On a card
the wall's counts, its work included. In a window the hooks only count; outside they record.
"""

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from advisor.probe import control
from advisor.probe.session import Session
from benchmarks.gpu.program import Kernels

ROWS = 16
STEPS, WARM = 200, 60
"""Steps of a turn, and those before it, in which the probe looks at everything once."""
CARD_MS = 5.0  # work of a card in a step


class Loop:
    """A training loop with everything that the probe hooks: loader, forward, backward, update."""

    def __init__(self, device: str, *, loader: bool) -> None:
        self._device, self._loader = torch.device(device), loader
        self._kernels = Kernels(self._device) if device == "cuda" else None
        self._model = torch.nn.Sequential(
            torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)
        ).to(self._device)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01, foreach=False)
        self._clock: Callable[[], float] = time.perf_counter if self._kernels else time.thread_time
        self._finish: Callable[[], object] = torch.cuda.synchronize if self._kernels else int
        self._data: Any = [torch.zeros(64)] * ROWS * STEPS

    def take(self, steps: int) -> list[float]:
        """Seconds of each step, the fetch of its batch included; on a card their mean alone."""
        batches, taken = self._batches(), []
        self._finish()
        first = start = self._clock()
        for rows in itertools.islice(batches, steps):
            self._optimizer.zero_grad()
            self._model(rows.to(self._device)).square().mean().backward()
            if self._kernels:
                self._kernels.queue(CARD_MS)
            self._optimizer.step()
            start, before = self._clock(), start
            taken.append(start - before)
        self._finish()
        return [(self._clock() - first) / steps] if self._kernels else taken

    def _batches(self) -> Iterator[Any]:
        """Batches of a pass; a loader of another length would be recorded as a new one."""
        if not self._loader:
            return itertools.repeat(torch.zeros(ROWS, 64))
        return iter(torch.utils.data.DataLoader(self._data, batch_size=ROWS))

    def probed(self, folder: str, *, counting: bool) -> list[float]:
        """Seconds of each step under the hooks, once they know the loop."""
        session = Session({"records": folder, "plan": {"mode": "observe"}})
        control.install(torch, session)
        try:
            self.take(WARM)
            control.tick(session, time.perf_counter())
            if self._kernels and session.device is None:
                control.begin_clock(session)
            if counting:
                session.switch(counting=True, calls=not self._loader)
            taken = self.take(STEPS)
            if session.counting != counting:
                msg = "the probe changed by itself what it records"
                raise RuntimeError(msg)
            return taken
        finally:
            session.patches.undo()
            if session.errors:
                raise RuntimeError(session.errors[0])


def added(loop: Loop, rounds: int, folder: str, *, counting: bool) -> dict[str, Any]:
    """What is added to a step: median, lowest and highest of turns, and to quick steps."""
    bare, probed = [], []
    for number in range(rounds):
        for arm in ("bare", "probed") if number % 2 else ("probed", "bare"):
            if arm == "probed":
                probed.append(loop.probed(folder, counting=counting))
                continue
            loop.take(WARM)
            bare.append(loop.take(STEPS))
    pairs = [tuple(map(statistics.mean, turns)) for turns in zip(bare, probed, strict=True)]
    before, after = (
        statistics.quantiles(itertools.chain(*all_), n=10)[0] for all_ in (bare, probed)
    )
    return {
        "step_ms": 1e3 * statistics.median(a for a, _ in pairs),
        "added_us": spread([1e6 * (b - a) for a, b in pairs]),
        "added_share": spread([b / a - 1 for a, b in pairs]),
        "added_to_quick_us": 1e6 * (after - before),
    }


def spread(values: list[float]) -> tuple[float, float, float]:
    """Median, lowest and highest."""
    return statistics.median(values), min(values), max(values)


def main() -> None:
    """Print a row for each loop and mode; with --json that of a window alone."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        if args.json:
            loop = Loop(args.device, loader=True)
            print(json.dumps(added(loop, args.rounds, folder, counting=True)))
            return
        print(f"{'us a step':32}{'quick':>8} {'median':>8} {'lowest to highest':>20}")
        for counting, loader in itertools.product((True, False), (True, False)):
            loop = Loop(args.device, loader=loader)
            found = added(loop, args.rounds, folder, counting=counting)
            quick, (middle, low, high) = found["added_to_quick_us"], found["added_us"]
            name = f"{'counted' if counting else 'recorded'}, {'' if loader else 'no '}loader"
            print(f"{name:32}{quick:8.1f} {middle:8.1f} {low:9.1f} to {high:.1f}")


if __name__ == "__main__":
    main()
