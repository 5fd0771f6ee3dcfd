"""What the probe costs the program it watches: microseconds a step, and start-up.

    python -m benchmarks.probe_overhead [--rounds N]

Hooks are put in and taken out again and again inside one process, so that both arms share the
machine's moods; each round is one sample, and the interval is over rounds. CPU time is compared,
not the wall's: the hooks never wait. Other tenants of the machine empty its caches all the same;
`least` compares each arm's least disturbed round. What the probe does once, in the first steps of
a program, is a row of its own: it belongs to the warm-up that is discarded. The last
rows are of one session that goes on and on, over a loop without a loader whose window is never
full: what a step costs after so many of them, looks at the log included, and what is held by then.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from advisor.probe import hooks
from advisor.probe.log import KINDS
from advisor.probe.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

SITE = Path(hooks.__file__).parent / "site"
STEP_MS = 10.0
LENGTHS = (10, 1_000, 100_000)
SHORT_STEP_MS, PADDED_STEPS = 1.0, 100
ENDLESS = {"mode": "window", "measure_s": 3.0, "min_steps": 10, "whole_batches": 10**9}
"""A plan that is looked at again and again, and never done."""
WARM = 40
"""First steps, in which the probe looks at everything once."""


class Loop:
    """A training loop with everything the probe hooks: loader, forward, loss, backward, step."""

    def __init__(self, pad_ms: float) -> None:
        torch.set_num_threads(1)
        self._pad_ms = pad_ms
        self._model = torch.nn.Sequential(
            torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)
        )
        self._loss = torch.nn.CrossEntropyLoss()
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01)
        self._data = torch.utils.data.TensorDataset(
            torch.zeros(100_000, 64), torch.zeros(100_000, dtype=torch.long)
        )

    def run(self, steps: int) -> tuple[float, float]:
        """(mean seconds of a step after the first ones, seconds of the first ones together), the
        fetch of the batch included."""
        batches = iter(torch.utils.data.DataLoader(self._data, batch_size=8))
        begin = time.thread_time()
        for _ in range(WARM):
            self._step(next(batches))
        start = time.thread_time()
        for _ in range(steps):
            self._step(next(batches))
        return (time.thread_time() - start) / steps, start - begin

    def without_a_loader(self, steps: int, pad_ms: float) -> float:
        """Mean seconds of a step on one batch, which is there already."""
        self._pad_ms = pad_ms
        batch = torch.zeros(8, 64), torch.zeros(8, dtype=torch.long)
        start = time.thread_time()
        for _ in range(steps):
            self._step(batch)
        return (time.thread_time() - start) / steps

    def _step(self, batch: Any) -> None:
        x, y = batch
        self._optimizer.zero_grad()
        self._loss(self._model(x), y).backward()
        self._optimizer.step()
        until = time.thread_time() + self._pad_ms / 1000
        while self._pad_ms and time.thread_time() < until:
            pass


@contextlib.contextmanager
def probed(folder: str) -> Iterator[Session]:
    """The hooks in this process, never stopping it."""
    session = Session({"records": folder, "plan": {"mode": "observe"}})
    hooks.install(torch, session)
    try:
        yield session
    finally:
        session.patches.undo()


class Arms:
    """Paired rounds of the same work, bare and probed."""

    def __init__(self) -> None:
        self.bare: list[float] = []
        self.probed: list[float] = []

    def add(self, seconds: dict[str, float]) -> None:
        self.bare.append(seconds["bare"])
        self.probed.append(seconds["probed"])

    def added(self, scale: float) -> tuple[list[float], float]:
        """Differences of the rounds, and of the least disturbed ones."""
        rounds = [scale * (b - a) for a, b in zip(self.bare, self.probed, strict=True)]
        return rounds, scale * (min(self.probed) - min(self.bare))

    def ratios(self) -> tuple[list[float], float]:
        """The same as ratios."""
        rounds = [b / a for a, b in zip(self.bare, self.probed, strict=True)]
        return rounds, min(self.probed) / min(self.bare)


def compare(pad_ms: float, steps: int, rounds: int, folder: str) -> tuple[Arms, Arms]:
    """Seconds of a step, and of the first steps together, arms in flipped order."""
    loop = Loop(pad_ms)
    loop.run(steps)
    later, first = Arms(), Arms()
    for number in range(rounds):
        seconds = {}
        for arm in ("bare", "probed") if number % 2 else ("probed", "bare"):
            with probed(folder) if arm == "probed" else contextlib.nullcontext():
                seconds[arm] = loop.run(steps)
        later.add({arm: both[0] for arm, both in seconds.items()})
        first.add({arm: both[1] for arm, both in seconds.items()})
    return later, first


def over_length(rounds: int, folder: str) -> Iterator[tuple[int, Arms, int]]:
    """(steps so far, seconds of a step then, entries held) of one session that never ends."""
    loop, done = Loop(0.0), 0
    session = Session({"records": folder, "plan": ENDLESS})

    def probed_steps(steps: int, pad_ms: float) -> float:
        hooks.install(torch, session)
        try:
            return loop.without_a_loader(steps, pad_ms)
        finally:
            session.patches.undo()

    loop.without_a_loader(WARM, 0.0)
    for length in LENGTHS:
        probed_steps(length - done, 0.0)
        arms = Arms()
        for number in range(rounds):
            seconds = {}
            for arm in ("bare", "probed") if number % 2 else ("probed", "bare"):
                run = probed_steps if arm == "probed" else loop.without_a_loader
                seconds[arm] = run(PADDED_STEPS, SHORT_STEP_MS)
            arms.add(seconds)
        done = session.log.count("opts")
        yield length, arms, sum(len(getattr(session.log, kind)) for kind in KINDS)


def start_up(rounds: int, folder: str) -> Arms:
    """CPU seconds of a process that imports torch."""
    spec = Path(folder, "spec.json")
    spec.write_text(
        json.dumps({"records": folder, "scratch": folder, "protect": folder, "plan": {}})
    )
    bare = {k: v for k, v in os.environ.items() if k != "GPU_ADVISOR_SPEC"}
    with_probe = {**bare, "GPU_ADVISOR_SPEC": str(spec), "PYTHONPATH": str(SITE)}
    arms = Arms()
    for number in range(rounds):
        seconds = {}
        for arm in ("bare", "probed") if number % 2 else ("probed", "bare"):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [sys.executable, "-c", "import torch"],
                env=with_probe if arm == "probed" else bare,
                check=True,
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds[arm] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        arms.add(seconds)
    return arms


def interval(values: list[float]) -> tuple[float, float, float]:
    """Median, and the order statistics that hold it with at least 95 %."""
    ordered, n = sorted(values), len(values)
    tail, k = 0.5**n, 0
    term = tail
    while k + 1 < n / 2 and tail + (term := term * (n - k) / (k + 1)) <= 0.025:
        tail += term
        k += 1
    return statistics.median(ordered), ordered[k], ordered[n - 1 - k]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--steps", type=int, default=1500)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tight, first = compare(0.0, args.steps, args.rounds, folder)
        padded, _ = compare(STEP_MS, 100, args.rounds, folder)
        boots = start_up(max(7, args.rounds // 2), folder)
    rows = (
        ("added a step", "us", tight.added(1e6), 15.0),
        (f"step-time ratio at {STEP_MS:g} ms", "", padded.ratios(), 1.005),
        ("added to start-up with torch", "ms", boots.added(1e3), 50.0),
        (f"added to the first {WARM} steps", "ms", first.added(1e3), float("nan")),
    )
    print(f"{'':34}{'median':>9}{'95 % interval':>20}{'least':>9}{'limit':>9}")
    for name, unit, (values, least), limit in rows:
        middle, low, high = interval(values)
        label = f"{name} [{unit}]" if unit else name
        print(f"{label:34}{middle:9.4g}{low:11.4g} {high:8.4g}{least:9.4g}{limit:9.4g}")
    with tempfile.TemporaryDirectory() as folder:
        for length, arms, held in over_length(args.rounds, folder):
            values, least = arms.added(1e6)
            middle, low, high = interval(values)
            label = f"added a step after {length:,} [us]"
            print(f"{label:34}{middle:9.4g}{low:11.4g} {high:8.4g}{least:9.4g}{15.0:9.4g}", end="")
            print(f"  {held:,} entries held")


if __name__ == "__main__":
    main()
