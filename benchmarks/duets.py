"""Duets by turns, or rounds of whole processes: which tells two arms apart better for its time?

    python -m benchmarks.duets [--seconds 75] [--repeats 1] [--world quiet|bursts|hog ...]
                               [--program loader ...] [--method duets ...] [--json FILE]

A round runs one arm after the other, each in a fresh process, as `optimize` does: it waits for a
quiet moment, leaves disturbed time out, and repeats disturbed rounds. A duet has both arms alive
and lets them take turns of half a second: all processes of one are stopped (SIGSTOP, its loader's
workers too) while the other runs. Its rate is by the clock of its own turns: a step that was
interrupted goes on in the next turn, so none is left out, neither long nor short ones.

Both get the same seconds a cell, starts included, and the same bounds (`comparison.bounds`); one
pair of processes is one value in either. The arms are equal, but in the last program, whose work
is 5 to 4. Worlds are those of `benchmarks.busy`. Run it on a machine that is otherwise idle;
the whole table takes half an hour.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import math
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor import config as documents
from advisor.config.argv import join
from advisor.executor.attempts import ABTest, TrialRequest, Variant
from advisor.executor.comparison import bounds
from advisor.executor.engines.local import LocalEngine
from advisor.executor.lab import WAIT_SHARE, Budget, Executor
from advisor.executor.program import COMMAND_LINE, Program
from advisor.executor.recall import RunCache
from advisor.model import Candidate, Change, Interval, MeasurePlan
from advisor.objective import THROUGHPUT
from benchmarks.busy import world
from benchmarks.formula_search import Forgetful, Quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

ROOT = Path(__file__).resolve().parents[1]
TURN_S = 0.5
WINDOW_S = 2.0
"""Of each arm, in a round and in a duet."""
WARM_S = 0.5
"""From a process' first step to its first turn."""
START_LIMIT_S = 60.0
PR_SET_PDEATHSIG = 1
MOST_ROUNDS = 99
"""More than a cell's seconds hold."""
STEP = struct.Struct("d")
"""One record of a program's log: when a step ended, in seconds of the monotonic clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versus:
    """A program, and how much work a unit is in either arm."""

    kind: str
    before: int
    after: int

    @property
    def truth(self) -> float:
        """How many times faster `after` is."""
        return self.before / self.after


PROGRAMS = {
    "loader": Versus(kind="loader", before=4, after=4),
    "small kernels": Versus(kind="small", before=4, after=4),
    "large kernel": Versus(kind="large", before=4, after=4),
    "large kernel, 5 to 4": Versus(kind="large", before=5, after=4),
}


def program(kind: str, work: int, log: Path | None) -> None:
    """Step for ever; the end of each step goes to `log`."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Items(Dataset[Any]):
        def __len__(self) -> int:
            return 10**7

        def __getitem__(self, index: int) -> Any:
            if kind == "loader":
                sum(k * k for k in range(5_000 * work))
            return torch.zeros(64)

    convolutions = (torch.nn.Conv2d(16, 16, 3, padding=1) for _ in range(6))
    model, given = {
        "loader": (torch.nn.Linear(64, 64), None),
        "small": (torch.nn.Sequential(*convolutions), torch.zeros(1, 16, 16, 16)),
        "large": (torch.nn.Linear(1024, 1024), torch.zeros(512, 1024)),
    }[kind]
    die_with_parent()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if log else None
    workers = 2 if kind == "loader" else 0
    for batch in DataLoader(
        Items(), batch_size=8, num_workers=workers, worker_init_fn=die_with_parent
    ):
        with torch.no_grad():
            for _ in range(1 if kind == "loader" else work):
                model(batch if given is None else given)
        if file is not None:
            os.write(file, STEP.pack(time.monotonic()))


def die_with_parent(_: int = 0) -> None:
    """Nothing that is stopped may be left behind, however the parent ended."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def command(kind: str, work: int, *more: str) -> list[str]:
    words = ["-m", "benchmarks.duets", "program", "--kind", kind, "--work", str(work)]
    return [sys.executable, *words, *more]


# --- duets --------------------------------------------------------------------------------


class Player:
    """One arm of a duet: a process and all that it starts, running only in its turns."""

    def __init__(self, kind: str, work: int, log: Path) -> None:
        self._log = log
        self._turns: list[tuple[float, float]] = []
        self._process = subprocess.Popen(
            command(kind, work, "--log", str(log)),
            cwd=ROOT,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
        )

    def __enter__(self) -> Self:
        """Begun, warm, and stopped."""
        try:
            until = time.monotonic() + START_LIMIT_S
            while not self._steps():
                if self._process.poll() is not None or time.monotonic() > until:
                    msg = f"no step of {self._process.args} within {START_LIMIT_S:.0f} s"
                    raise RuntimeError(msg)
                time.sleep(0.02)
            time.sleep(WARM_S)
            os.killpg(self._process.pid, signal.SIGSTOP)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """No process is left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def turn(self) -> None:
        """Run for a while."""
        begun = time.monotonic()
        os.killpg(self._process.pid, signal.SIGCONT)
        time.sleep(TURN_S)
        os.killpg(self._process.pid, signal.SIGSTOP)
        self._turns.append((begun, time.monotonic()))

    def rate(self) -> float:
        """Steps a second by the clock of its turns."""
        ends = [at for end in self._steps() if (at := self._own_clock(end)) is not None]
        if len(ends) < 2:
            msg = f"{len(ends)} steps in {len(self._turns)} turns of {self._process.args}"
            raise RuntimeError(msg)
        return (len(ends) - 1) / (ends[-1] - ends[0])

    def _own_clock(self, moment: float) -> float | None:
        spent_s = 0.0
        for begun, ended in self._turns:
            if begun <= moment <= ended:
                return spent_s + moment - begun
            spent_s += ended - begun
        return None

    def _steps(self) -> list[float]:
        told = self._log.read_bytes() if self._log.exists() else b""
        whole = len(told) // STEP.size * STEP.size
        return [end for (end,) in STEP.iter_unpack(told[:whole])]


def duet(versus: Versus, number: int) -> float:
    """Log ratio of `after` over `before`, of one pair of processes."""
    with tempfile.TemporaryDirectory(prefix="duet-") as folder, contextlib.ExitStack() as stack:
        works = [("before", versus.before), ("after", versus.after)]
        players = {
            arm: stack.enter_context(Player(versus.kind, work, Path(folder, arm)))
            for arm, work in (works if number % 2 == 0 else reversed(works))
        }
        for turn in range(round(WINDOW_S / TURN_S)):
            order = list(players.values())
            for player in order if turn % 2 == 0 else reversed(order):
                player.turn()
        return math.log(players["after"].rate() / players["before"].rate())


def duets(versus: Versus, seconds: float) -> list[float]:
    """As many as fit into `seconds`; at least two."""
    begun, found, longest_s = time.monotonic(), [], 0.0
    while len(found) < 2 or time.monotonic() - begun + longest_s < seconds:
        before = time.monotonic()
        found.append(duet(versus, len(found)))
        longest_s = max(longest_s, time.monotonic() - before)
    return found


# --- rounds -------------------------------------------------------------------------------


def rounds(versus: Versus, seconds: float) -> list[float]:
    """The log ratios that count of the interleaved rounds that fit into `seconds`."""
    line = documents.parse(join(command(versus.kind, versus.before)), "argv", COMMAND_LINE)
    changed = Candidate().with_changes(
        Change(
            document=COMMAND_LINE,
            path="--work",
            kind="batch_size",
            knob_class="free",
            old=versus.before,
            new=versus.after,
        )
    )
    with LocalEngine(patience_s=WAIT_SHARE * seconds) as engine:
        begun = engine.clock()
        lab = Executor(
            engine=engine,
            program=Program(config=None, command_line=line, cwd=ROOT, unit="step"),
            commands={},
            recall=RunCache(history=Forgetful(), machine_key="m", program_key="p"),
            budget=Budget(total_s=seconds, clock=engine.clock, started=begun),
            listener=Quiet(),
        )

        def ask(candidate: Candidate, expected_s: float) -> TrialRequest:
            return TrialRequest(
                arm=Variant(candidate=candidate),
                purpose="scaling",
                plan=MeasurePlan(measure_s=WINDOW_S, min_steps=2),
                fresh=True,
                expected_s=expected_s,
            )

        candidates = (Candidate(), changed if versus.before != versus.after else Candidate())
        # what one process takes is known from the first two: none is begun that will not end
        first = [lab.measure(ask(each, 0.0)) for each in candidates]
        price_s = max(engine.clock() - begun, 0.1) / len(first)
        lab.budget.started = engine.clock()  # they are not counted, so nor is what they took
        before, after = (ask(each, price_s) for each in candidates)
        contest = ABTest(
            purpose="scaling", title="rounds", before=before, after=after, rounds=MOST_ROUNDS
        )
        return lab.compare(contest).log_gains(THROUGHPUT)


METHODS: dict[str, Callable[[Versus, float], list[float]]] = {"rounds": rounds, "duets": duets}


# --- the table ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GridPoint:
    """What one method said of one program in one world."""

    world: str
    program: str
    method: str
    seconds: float
    log_ratios: tuple[float, ...]
    load_before: float
    """Of the machine in the minute before, by the kernel: 0 where it was idle."""

    @property
    def interval(self) -> Interval | None:
        return bounds(self.log_ratios)

    @property
    def holds(self) -> bool | None:
        """Whether the true ratio lies inside the interval; None without one."""
        found, truth = self.interval, PROGRAMS[self.program].truth
        return found.low <= truth <= found.high if found else None


def measured(
    worlds: Sequence[str], names: Sequence[str], methods: Sequence[str], seconds: float
) -> Iterator[GridPoint]:
    """Every cell once; the methods take turns in going first."""
    for number, (name, place) in enumerate((n, p) for n in names for p in worlds):
        for method in methods if number % 2 == 0 else reversed(methods):
            load = os.getloadavg()[0]
            begun = time.monotonic()
            with world(place):
                found = METHODS[method](PROGRAMS[name], seconds)
            yield GridPoint(
                world=place,
                program=name,
                method=method,
                seconds=time.monotonic() - begun,
                log_ratios=tuple(found),
                load_before=load,
            )


def line_of(cell: GridPoint) -> str:
    found = cell.interval
    told = "- | - | -"
    holds = {True: "yes", False: "NO", None: "-"}[cell.holds]
    if found is not None:
        width = math.log(found.high / found.low)
        told = f"{found.estimate:.3f} | {found.low:.3f} to {found.high:.3f} | {width:.1%}"
    return (
        f"| {cell.world} | {cell.program} | {cell.method} | {cell.seconds:.0f} "
        f"| {len(cell.log_ratios)} | {told} | {holds} "
        f"| {cell.load_before:.2f} |"
    )


def summary(cells: Sequence[GridPoint]) -> list[str]:
    """By world and method: spread of one pair of processes, its bias, and how often it held."""
    lines = ["", "| world | method | pairs | spread of a pair | off by | inside |"]
    lines.append("|:--|:--|--:|--:|--:|--:|")
    for place in dict.fromkeys(cell.world for cell in cells):
        for method in METHODS:
            mine = [cell for cell in cells if (cell.world, cell.method) == (place, method)]
            off = [
                value - math.log(PROGRAMS[cell.program].truth)
                for cell in mine
                for value in cell.log_ratios
            ]
            spreads = [statistics.variance(c.log_ratios) for c in mine if len(c.log_ratios) > 1]
            if not spreads:
                continue
            lines.append(
                f"| {place} | {method} | {len(off)} | {math.sqrt(statistics.fmean(spreads)):.2%} "
                f"| {statistics.fmean(off):+.2%} ± {statistics.stdev(off) / len(off) ** 0.5:.2%} "
                f"| {sum(cell.holds is True for cell in mine)} of {len(spreads)} |"
            )
    return lines


def main() -> None:
    """Print a line for each cell as it ends, and the summary."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=75.0, help="of a cell and method")
    parser.add_argument("--repeats", type=int, default=1, help="of the whole table")
    parser.add_argument("--world", action="append", choices=["quiet", "bursts", "hog"])
    parser.add_argument("--program", action="append", choices=list(PROGRAMS))
    parser.add_argument("--method", action="append", choices=list(METHODS))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # through the ends of all players
    cells: list[GridPoint] = []
    print(
        "| world | program | method | s | pairs | ratio | bounds | width | inside | load before |"
    )
    print("|:--|:--|:--|--:|--:|--:|:--|--:|:--|--:|")
    for _ in range(args.repeats):
        worlds = args.world or ["quiet", "bursts", "hog"]
        programs, methods = args.program or list(PROGRAMS), args.method or list(METHODS)
        for cell in measured(worlds, programs, methods, args.seconds):
            cells.append(cell)
            print(line_of(cell), flush=True)
            if args.json:
                args.json.write_text(json.dumps([asdict(each) for each in cells]) + "\n")
    print("\n".join(summary(cells)))


def play(argv: Sequence[str]) -> None:
    """One arm's program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", required=True)
    parser.add_argument("--work", type=int, required=True)
    parser.add_argument("--log", type=Path)
    args = parser.parse_args(argv)
    program(args.kind, args.work, args.log)


if __name__ == "__main__":
    if sys.argv[1:2] == ["program"]:
        play(sys.argv[2:])
    else:
        main()
