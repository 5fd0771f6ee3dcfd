"""What a trial costs more under each kind of isolation that holds on this host.

    python -m benchmarks.isolation [--rounds 15] [--before CHECKOUT [--program NAME]]

Trials run in interleaved rounds, with and without isolation. With `--before` each is run by this
checkout and by an older one in turn: what a trial costs more since, and its program's own work.
"""

import argparse
import contextlib
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from advisor.model import Run
from advisor.runner.trial import run_trial
from advisor.sandbox.capabilities import detect_isolation
from advisor.sandbox.policy import KINDS, Kind
from tests.support.isolation import trial

FILES, ROUNDS_A_PROGRAM = 2000, 3
READER = """
import os, sys, time
from pathlib import Path
names = sorted(Path("data").iterdir())
for again in range({rounds} + 1):
    if again == 1: start = time.perf_counter()
    for name in names:
        with open(name, "rb") as file: sum(file.read())
print((time.perf_counter() - start) / len(names) / {rounds})
"""


def cost(kinds: list[Kind], rounds: int) -> str:
    """Time of a trial that does nothing, and of reading one small file, both paired.

    CPU time, of all processes of the trial, is what a busy host does not change.
    """
    taken: dict[Kind, list[tuple[float, float, float]]] = {kind: [] for kind in kinds}
    """Seconds of the trial, of its CPUs, and of reading one file."""
    with tempfile.TemporaryDirectory(prefix="cost-") as folder:
        project = Path(folder, "project")
        data = project / "data"
        data.mkdir(parents=True)
        for number in range(FILES):
            (data / f"{number}.bin").write_bytes(os.urandom(4096))
        reader = READER.format(rounds=ROUNDS_A_PROGRAM)
        for number in range(rounds + 1):
            for kind in kinds if number % 2 else reversed(kinds):
                # in one folder, as those of a call: the first one finds out what holds there
                place = Path(folder, f"{number}-{kind}")
                start, used = time.perf_counter(), _cpu_s()
                run_trial(trial(NOTHING, kind=kind, cwd=project, scratch=place))
                wall_s, cpu_s = time.perf_counter() - start, _cpu_s() - used
                place = place.with_suffix(".reads")
                run = run_trial(trial(["-c", reader], kind=kind, cwd=project, scratch=place))
                if number:
                    read_s = float(run.stdout_tail if isinstance(run, Run) else "nan")
                    taken[kind].append((wall_s, cpu_s, read_s))
    lines = [f"{rounds} interleaved rounds, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"]
    for kind in kinds:
        spans, _, reads = zip(*taken[kind], strict=True)
        pairs = list(zip(taken[kind], taken["guard"], strict=True))
        more, work = ([own[n] - bare[n] for own, bare in pairs] for n in (0, 1))
        ratio = [own[2] / bare[2] for own, bare in pairs]
        lines.append(
            f"{kind}: a trial {1e3 * statistics.median(spans):.0f} ms (least "
            f"{1e3 * min(spans):.0f}), {1e3 * statistics.median(more):+.0f} ms more than "
            f"without, CPU {1e3 * statistics.median(work):+.0f} ms; a file read "
            f"{1e6 * statistics.median(reads):.1f} us, "
            f"{statistics.median(ratio):.3f} times"
        )
    return "\n".join(lines)


def _cpu_s() -> float:
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


STEPS = """
import time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
batches = [torch.randn(32, 64) for _ in range(64)]
for step in range(550):
    if step == 50: start = time.process_time()
    loss = model(batches[step % 64]).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
print((time.process_time() - start) / 500)
"""
NOTHING = ["-S", "-c", ""]
PROGRAMS = {"nothing": NOTHING, "500 steps of torch": ["-c", STEPS]}
"""A program's words; it prints the CPU time of one step in seconds, if any."""
SERVES = """
import json, resource, sys, time
from pathlib import Path
from advisor.runner.trial import run_trial
from tests.support.isolation import trial
folder = Path(sys.argv[1])
(folder / "project").mkdir(parents=True)
def cpu_s():
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)
for number, line in enumerate(sys.stdin):
    words, kind = json.loads(line)
    start, used = time.perf_counter(), cpu_s()
    run = run_trial(
        trial(words, kind=kind, cwd=folder / "project", scratch=folder / str(number))
    )
    taken = [time.perf_counter() - start, cpu_s() - used]
    print(json.dumps([*taken, getattr(run, "stdout_tail", "")]), flush=True)
"""
"""Runs trials of one checkout: a line of JSON each, and its answer."""


class Checkout:
    """Trials of one checkout, in a process of its own."""

    def __init__(self, top: Path, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVES, str(folder)], cwd=top, text=True,
            env={**os.environ, "PYTHONPATH": str(top)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def run(self, program: str, kind: Kind) -> tuple[float, float, float]:
        """Seconds of one trial, of its CPUs, and of one step of its program."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([PROGRAMS[program], kind]) + "\n")
        self._process.stdin.flush()
        wall_s, cpu_s, printed = json.loads(self._process.stdout.readline())
        return wall_s, cpu_s, float(printed.strip() or "nan")

    def close(self) -> None:
        self._process.communicate()


def compared(
    before: Path, kinds: list[Kind], rounds: int, programs: Sequence[str]
) -> Iterator[str]:
    """What a trial costs here and in `before`, paired, by kind and program.

    The kind "guard" has no wall of the kernel: what it costs more here is the probe's, and what
    another kind costs beyond that is the walls'.
    """
    with tempfile.TemporaryDirectory(prefix="cost-") as folder, contextlib.ExitStack() as stack:
        tops = {"before": before, "now": Path(__file__).resolve().parents[1]}
        sides = {name: Checkout(top, Path(folder, name)) for name, top in tops.items()}
        for side in sides.values():
            stack.callback(side.close)
        for program in programs:
            for kind in kinds:
                pairs = []
                for number in range(rounds + 1):
                    order = list(sides) if number % 2 else list(sides)[::-1]
                    found = {name: sides[name].run(program, kind) for name in order}
                    if number:  # the first one finds out what holds
                        pairs.append((found["before"], found["now"]))
                yield f"{kind}, {program}: {_in_words(pairs)}"


def _in_words(pairs: list[tuple[tuple[float, ...], tuple[float, ...]]]) -> str:
    told = []
    for place, (name, unit, each_s) in enumerate(
        (("wall", "ms", 1e3), ("CPU", "ms", 1e3), ("a step", "us", 1e6))
    ):
        old, new = ([side[place] for side in sides] for sides in zip(*pairs, strict=True))
        if math.isnan(old[0]):
            continue
        more = [each_s * (n - o) for o, n in zip(old, new, strict=True)]
        error = statistics.stdev(more) / math.sqrt(len(more))
        ratio = statistics.median(n / o for o, n in zip(old, new, strict=True))
        before, now = (each_s * statistics.median(side) for side in (old, new))
        told.append(
            f"{name} {before:.1f} -> {now:.1f} {unit} "
            f"({statistics.mean(more):+.1f} +- {error:.1f}, {ratio:.3f} times)"
        )
    return "; ".join(told)


def main() -> None:
    """Print the cost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--before", type=Path, help="an older checkout to compare with")
    parser.add_argument("--program", choices=PROGRAMS, help="one alone, with --before")
    given = parser.parse_args()
    best = detect_isolation(str(Path.cwd()))
    kinds = list(KINDS[KINDS.index(best.kind) :])  # each holds where a better one does
    why = f" ({best.why_not_better})" if best.why_not_better else ""
    sys.stdout.write(f"user {os.geteuid()}; this host offers {best.kind}{why}\n\n")
    if given.before is None:
        sys.stdout.write(cost(kinds, given.rounds) + "\n")
        return
    programs = [given.program] if given.program else list(PROGRAMS)
    for line in compared(given.before.resolve(), kinds, given.rounds, programs):
        print(line, flush=True)


if __name__ == "__main__":
    main()
