"""What the probe costs the program it watches: microseconds a step, and start-up.

    taskset -c 1 python -m benchmarks.probe_overhead [--pairs N] [--turns N]

Two processes on one core, one with the hooks, take steps by turns of some milliseconds, so that
both share the machine's moods. CPU time is compared, not the wall's: the hooks never wait. Where a
process lies in memory alone makes its steps some percent longer or shorter, so there are several
pairs, and one pair is one sample. Steps are recorded in full, or only counted as in a window.

The rows by length are of steps of a millisecond without a loader. The first steps of a program are
a row of their own, for which hooks are put in and taken out inside one process: they belong to the
warm-up that is discarded.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
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
from advisor.probe.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

SITE = Path(hooks.__file__).parent / "site"
STEP_MS = 10.0
LENGTHS = (10, 1_000, 100_000)
SHORT_STEP_MS = 1.0
PLAIN = {"mode": "observe"}
WARM = 40
"""First steps, in which the probe looks at everything once."""
TURN = 256
"""Steps of a turn."""
LEARNT = 1_200
"""Steps before the first turn, but for the rows by length."""
FEW = 3
"""Pairs of the rows by length: a hundred thousand steps take minutes."""
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
def probed(folder: str, plan: dict[str, Any]) -> Iterator[Session]:
    """The hooks in this process, never stopping it."""
    session = Session({"records": folder, "plan": plan})
    hooks.install(torch, session)
    try:
        yield session
    finally:
        session.patches.undo()


def first_steps(rounds: int, folder: str) -> list[float]:
    """Milliseconds that are added to the first steps together, arms in flipped order."""
    loop, added = Loop(), []
    loop.take(loop.batches("a loader"), WARM)
    for number in range(rounds):
        seconds = {}
        for arm in ORDERS[number % 2]:
            with probed(folder, PLAIN) if arm == "probed" else contextlib.nullcontext():
                seconds[arm] = WARM * loop.take(loop.batches("a loader"), WARM)
        added.append(1e3 * (seconds["probed"] - seconds["bare"]))
    return added


def by_turns(
    loop: str, pad_ms: float, turns: int, learnt: int = LEARNT, *, counting: bool = True
) -> tuple[float, float]:
    """(microseconds added to a step, ratio of the steps) of one pair."""
    words = ("--take", loop, str(pad_ms), str(learnt), str(int(counting)))
    with contextlib.ExitStack() as ends:
        begun = {
            arm: ends.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", __spec__.name, *words, arm],
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for arm in ORDERS[0]
        }

        def turn(arm: str) -> float:
            asked, answered = begun[arm].stdin, begun[arm].stdout
            assert asked is not None
            assert answered is not None
            asked.write("\n")
            asked.flush()
            return float(answered.readline())

        seconds: dict[str, list[float]] = {arm: [] for arm in begun}
        for number in range(turns + 1):  # in the first turn everything is learnt
            for arm in ORDERS[number % 2]:
                took_s = turn(arm)
                seconds[arm].extend([took_s] if number else [])
        for process in begun.values():
            assert process.stdin is not None
            process.stdin.close()
    pairs = list(zip(seconds["bare"], seconds["probed"], strict=True))
    added_us = 1e6 * statistics.median(b - a for a, b in pairs)
    return added_us, statistics.median(b / a for a, b in pairs)


def answer(loop: str, pad_ms: float, learnt: int, counting: bool, arm: str) -> None:
    """One of two processes: a turn for each line that comes in, answered by its seconds."""
    work = Loop()
    with tempfile.TemporaryDirectory() as folder:
        with probed(folder, PLAIN) if arm == "probed" else contextlib.nullcontext() as session:
            batches = work.batches(loop)
            steps, pad = learnt, 0.0
            for _ in sys.stdin:
                took_s = work.take(batches, steps, pad)
                if session is not None and counting:
                    session.switch(counting=True, calls=loop == "no loader")
                print(took_s, flush=True)
                steps, pad = TURN, pad_ms
        if session is not None and session.errors:
            raise RuntimeError(session.errors[0])


def start_up(rounds: int, folder: str) -> list[float]:
    """CPU milliseconds that are added to a process that imports torch."""
    spec = Path(folder, "spec.json")
    spec.write_text(json.dumps({"records": folder, "protect": folder, "plan": {}}))
    bare = {k: v for k, v in os.environ.items() if k != "GPU_ADVISOR_SPEC"}
    with_probe = {**bare, "GPU_ADVISOR_SPEC": str(spec), "PYTHONPATH": str(SITE)}
    added = []
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
        added.append(1e3 * (seconds["probed"] - seconds["bare"]))
    return added


def interval(values: list[float]) -> tuple[float, float, float]:
    """Median, and the order statistics that hold it with at least 95 %."""
    ordered, n = sorted(values), len(values)
    tail, k = 0.5**n, 0
    term = tail
    while k + 1 < n / 2 and tail + (term := term * (n - k) / (k + 1)) <= 0.025:
        tail += term
        k += 1
    return statistics.median(ordered), ordered[k], ordered[n - 1 - k]


def row(name: str, values: list[float], limit: float, beside: str = "") -> None:
    """Print one."""
    middle, low, high = interval(values)
    print(f"{name:38}{middle:9.4g}{low:11.4g} {high:8.4g}{limit:9.4g}{beside}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pairs", type=int, default=7, help="of processes, for each row")
    parser.add_argument("--turns", type=int, default=40, help="of each process of a pair")
    parser.add_argument("--take", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.take:
        loop, pad_ms, learnt, counting, arm = args.take
        answer(loop, float(pad_ms), int(learnt), bool(int(counting)), arm)
        return
    print(f"{'':38}{'median':>9}{'95 % interval':>20}{'limit':>9}")
    for counting, how in ((True, "counted"), (False, "recorded")):
        for loop in LOOPS:
            pairs = [by_turns(loop, 0.0, args.turns, counting=counting) for _ in range(args.pairs)]
            limit = 40.0 if counting else math.nan
            row(f"added a step, {how}, {loop} [us]", [added for added, _ in pairs], limit)
    for length in LENGTHS:
        pairs = [
            by_turns("no loader", SHORT_STEP_MS, args.turns // 4, length)
            for _ in range(min(args.pairs, FEW))
        ]
        row(f"added a step after {length:,} [us]", [added for added, _ in pairs], 40.0)
    padded = [by_turns("a loader", STEP_MS, args.turns // 4)[1] for _ in range(args.pairs)]
    row(f"step-time ratio at {STEP_MS:g} ms", padded, 1.005)
    with tempfile.TemporaryDirectory() as folder:
        row(f"added to the first {WARM} steps [ms]", first_steps(3 * args.pairs, folder), math.nan)
        row("added to start-up with torch [ms]", start_up(args.pairs, folder), 50.0)


if __name__ == "__main__":
    main()
