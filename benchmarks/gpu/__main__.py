"""The steps in order, within the time; each line is on disk before the next is looked for."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from advisor.machine import contention
from benchmarks.gpu import facts, memory, rates, whole
from benchmarks.gpu.bench import ROOT, Bench, environ_of
from benchmarks.gpu.record import Line, Record

LAST = ("relighting", "headpose", "speech")
"""They say themselves where too little time is left for them, and it counts for nothing."""
WORKLOADS = whole.steps()
STEPS: dict[str, Callable[[Bench], Iterator[Line]]] = {
    "card": facts.card_facts,
    "overhead": facts.probe_overhead,
    "rates": rates.rates,
    "memory": memory.out_of_memory,
    "caps": memory.caps,
    "causes": rates.causes,
    "pairs": rates.pairs,
    "dem": WORKLOADS["dem"],
    "emberformer": WORKLOADS["emberformer"],
    "gate": whole.gate,
    **{name: WORKLOADS[name] for name in LAST},
}
MINUTES, FAKE_MINUTES = 8.0, 40.0
"""Longest it may take; cards that are simulated wait for the CPUs of this host."""
LEAST_S = 15.0
"""With less time left a step is not begun."""


def main(argv: list[str] | None = None) -> int:
    """0 if every step was begun and every line is as expected, else 1."""
    parser = argparse.ArgumentParser(prog="benchmarks.gpu", description=__doc__)
    parser.add_argument("--simulated", action="store_true", help="on a simulated card, shorter")
    parser.add_argument("--fake", metavar="CARD", help="rehearse over rtx-3090, rtx-4060 or h100")
    parser.add_argument("--made", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help="folder of the two files")
    parser.add_argument("--minutes", type=float, help="longest it may take (8; --fake: 40)")
    parser.add_argument("--only", nargs="+", choices=STEPS, metavar="STEP", help=", ".join(STEPS))
    args = parser.parse_args(argv)
    if args.fake:
        return rehearse(args.fake, sys.argv[1:] if argv is None else argv)
    chosen = args.only or tuple(STEPS)
    minutes = args.minutes or (FAKE_MINUTES if args.made else MINUTES)
    with tempfile.TemporaryDirectory(prefix="gpu-bench-") as folder:
        results = ROOT / "benchmarks" / "results"
        apart = args.simulated or args.made
        record = Record(folder=args.output or (Path(folder) if apart else results), made=args.made)
        environ = environ_of(Path(folder), alone=apart)
        if args.made:  # its figures depend on this host, whose load is to be seen
            environ.pop(contention.UNSEEN)
        bench = Bench(
            folder=Path(folder),
            until=time.monotonic() + 60 * minutes,
            simulated=args.simulated,
            made=args.made,
            short=args.simulated and not args.only,
            environ=on_two_cards(environ) if args.simulated else environ,
            own_time={"SIMULATED_GPU_OWN_TIME": "1"} if args.simulated else {},
        )
        for name in ("card", *(step for step in chosen if step != "card")):
            run_step(bench, record, name)
        print(record.page() if args.made else f"{record.folder / record.stem}.md")
    return int(not record.as_expected)


def rehearse(card: str, argv: list[str]) -> int:
    """The same in torch's CUDA build, over cards that are simulated below the CUDA API."""
    from tests import fakegpu

    if why := fakegpu.missing():
        raise SystemExit(why)
    at = argv.index("--fake") if "--fake" in argv else -1
    rest = [*argv[:at], *argv[at + 2 :]] if at >= 0 else [w for w in argv if "--fake" not in w]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with fakegpu.Cards(card) as cards:
        environ = cards.environment({**os.environ, "PYTHONPATH": path})
        words = (str(fakegpu.PYTHON), "-m", "benchmarks.gpu", "--made", *rest)
        return subprocess.run(words, cwd=ROOT, env=environ, check=False).returncode


def on_two_cards(environ: Mapping[str, str]) -> Mapping[str, str]:
    """The same with two simulated cards, where there is none."""
    from tests import simulated_gpu

    first = simulated_gpu.Card(memory_gib=80.0, memory_scale=256.0, copy_us_per_mb=2_000.0)
    other = replace(first, name="NVIDIA L4", uuid="GPU-22222222-0000-0000-0000-000000000002")
    return simulated_gpu.environment((first, other), base=environ)


def run_step(bench: Bench, record: Record, name: str) -> None:
    """All lines of a step; one that breaks is a line too."""
    bench.step = name
    if bench.left_s < LEAST_S and name not in LAST:
        line = bench.line("not begun", "", f"{max(0.0, bench.left_s):.0f} s were left", None)
        record.add(replace(line, begun=False))
        return
    last = time.monotonic()
    try:
        for line in STEPS[name](bench):
            now = time.monotonic()
            record.add(replace(line, seconds=now - last))
            last = now
    except Exception as problem:
        where = traceback.extract_tb(problem.__traceback__)[-1]
        message = f"{type(problem).__name__}: {problem}"[:400]
        mend = f"{Path(where.filename).name}:{where.lineno}, the step itself"
        record.add(bench.line("the step ends", "it does", message, False, mend))
    if name == "card":
        record.name = str(bench.card.get("name", "no card"))
        if bench.simulated:
            record.name = "a simulated card"
        if bench.made:
            record.name = f"a made {record.name}"
        record.facts = {k: v for k, v in bench.card.items() if k != "cards"}
        record.write()


if __name__ == "__main__":
    raise SystemExit(main())
