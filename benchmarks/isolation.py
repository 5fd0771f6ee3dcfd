"""What a trial costs more under each kind of isolation that holds on this host.

    python -m benchmarks.isolation [--rounds 15]

Trials run in interleaved rounds, with and without isolation.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
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
                place = Path(folder, f"{number}-{kind}")
                place.mkdir()
                start, used = time.perf_counter(), _cpu_s()
                run_trial(trial(["-S", "-c", ""], kind=kind, cwd=project, scratch=place / "1"))
                wall_s, cpu_s = time.perf_counter() - start, _cpu_s() - used
                run = run_trial(trial(["-c", reader], kind=kind, cwd=project, scratch=place / "2"))
                if number:  # the first one finds out what holds
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
    times = os.times()
    return times.children_user + times.children_system


def main() -> None:
    """Print the cost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    best = detect_isolation(str(Path.cwd()))
    kinds = list(KINDS[KINDS.index(best.kind) :])  # each holds where a better one does
    why = f" ({best.why_not_better})" if best.why_not_better else ""
    sys.stdout.write(f"user {os.geteuid()}; this host offers {best.kind}{why}\n\n")
    sys.stdout.write(cost(kinds, given.rounds) + "\n")


if __name__ == "__main__":
    main()
