"""What the probe costs the program it watches: microseconds a step, and start-up.

    taskset -c 1 python -m benchmarks.probe_overhead [--rounds N]

Two processes on one core, one with the hooks, take steps by turns of some milliseconds, so that
both share the machine's moods; a pair of turns is one sample. CPU time is compared, not the wall's:
the hooks never wait. Other tenants of the machine empty its caches all the same. `least` compares
each arm's least disturbed turn. What the probe does once, in the first steps of a program, is a row
of its own, for which hooks are put in and taken out inside one process: it belongs to the warm-up
that is discarded. The last rows are of one session that goes on and on, over a loop without a
loader whose window is never full: what a step costs after so many of them, looks at the log
included, and what is held by then.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
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
SHORT_STEP_MS = 1.0
ENDLESS = {"mode": "window", "measure_s": 3.0, "min_steps": 10, "whole_batches": 10**9}
"""A plan that is looked at again and again, and never done."""
WARM = 40
"""First steps, in which the probe looks at everything once."""
TURN = 40
"""Steps of a turn."""
LEARNT = 1_200
"""Steps before the first turn: the probe looks at fewer and fewer of the first 513."""
LOOPS = ("a loader", "no loader")
ORDERS = (("bare", "probed"), ("probed", "bare"))


class Loop:
    """A training loop with everything the probe hooks: loader, forward, loss, backward, step."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._model = torch.nn.Sequential(
            torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)
        )
        self._loss = torch.nn.CrossEntropyLoss()
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01)
        self._data = torch.utils.data.TensorDataset(
            torch.zeros(100_000, 64), torch.zeros(100_000, dtype=torch.long)
        )

    def batches(self, loop: str) -> Iterator[Any]:
        """Of a loader, again and again, or one that is there already."""
        while loop == "a loader":
            yield from torch.utils.data.DataLoader(self._data, batch_size=8)
        yield from itertools.repeat((torch.zeros(8, 64), torch.zeros(8, dtype=torch.long)))

    def take(self, batches: Iterator[Any], steps: int, pad_ms: float = 0.0) -> float:
        """Mean seconds of a step that is made longer by `pad_ms` of Python, the fetch of its batch
        included."""
        start = time.thread_time()
        for _ in range(steps):
            self._step(next(batches), pad_ms)
        return (time.thread_time() - start) / steps

    def _step(self, batch: Any, pad_ms: float) -> None:
        x, y = batch
        self._optimizer.zero_grad()
        self._loss(self._model(x), y).backward()
        self._optimizer.step()
        until = time.thread_time() + pad_ms / 1000
        while pad_ms and time.thread_time() < until:
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


def first_steps(rounds: int, folder: str) -> Arms:
    """Seconds of the first steps together, arms in flipped order."""
    loop, arms = Loop(), Arms()
    loop.take(loop.batches("a loader"), WARM)
    for number in range(rounds):
        seconds = {}
        for arm in ORDERS[number % 2]:
            with probed(folder) if arm == "probed" else contextlib.nullcontext():
                seconds[arm] = WARM * loop.take(loop.batches("a loader"), WARM)
        arms.add(seconds)
    return arms


def by_turns(loop: str, pad_ms: float, turns: int) -> Arms:
    """Seconds of a step in either process, turn by turn."""
    arms = Arms()
    with contextlib.ExitStack() as ends:
        begun = {
            arm: ends.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", __spec__.name, "--take", loop, arm, str(pad_ms)],
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for arm in ORDERS[0]
        }

        def turn(arm: str) -> float:
            asked, told = begun[arm].stdin, begun[arm].stdout
            assert asked is not None
            assert told is not None
            asked.write("\n")
            asked.flush()
            return float(told.readline())

        for number in range(turns + 1):
            seconds = {arm: turn(arm) for arm in ORDERS[number % 2]}
            if number:  # in the first one the hooks are built and everything is learnt
                arms.add(seconds)
        for process in begun.values():
            assert process.stdin is not None
            process.stdin.close()
    return arms


def answer(loop: str, arm: str, pad_ms: float) -> None:
    """One of two processes: a turn for each line that comes in, answered by its seconds."""
    work = Loop()
    with tempfile.TemporaryDirectory() as folder:
        with probed(folder) if arm == "probed" else contextlib.nullcontext() as session:
            batches = work.batches(loop)
            steps = LEARNT
            for _ in sys.stdin:
                print(work.take(batches, steps, pad_ms), flush=True)
                steps = TURN
        if session is not None and session.errors:
            raise RuntimeError(session.errors[0])


def over_length(rounds: int, folder: str) -> Iterator[tuple[int, Arms, int]]:
    """(steps so far, seconds of a step then, entries held) of one session that never ends."""
    loop, done = Loop(), 0
    batches = loop.batches("no loader")
    session = Session({"records": folder, "plan": ENDLESS})

    def taken(arm: str, steps: int, pad_ms: float) -> float:
        if arm == "probed":
            hooks.install(torch, session)
        try:
            return loop.take(batches, steps, pad_ms)
        finally:
            session.patches.undo()

    taken("bare", WARM, 0.0)
    for length in LENGTHS:
        taken("probed", length - done, 0.0)
        arms = Arms()
        for number in range(rounds):
            arms.add({arm: taken(arm, TURN, SHORT_STEP_MS) for arm in ORDERS[number % 2]})
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
        for arm in ORDERS[number % 2]:
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
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument("--take", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.take:
        loop, arm, pad_ms = args.take
        answer(loop, arm, float(pad_ms))
        return
    tight = {loop: by_turns(loop, 0.0, args.turns) for loop in LOOPS}
    padded = by_turns("a loader", STEP_MS, args.turns // 10)
    with tempfile.TemporaryDirectory() as folder:
        first = first_steps(args.rounds, folder)
        boots = start_up(max(7, args.rounds // 2), folder)
    rows = (
        *((f"added a step, {loop}", "us", arms.added(1e6), 15.0) for loop, arms in tight.items()),
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
