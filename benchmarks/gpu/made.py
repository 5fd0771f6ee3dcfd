"""What is told of twenty programs over made cards, beside what those cards did.

    python -m benchmarks.gpu.made ["PROGRAM WORDS" ...] [--cards rtx-3090 ...]

It needs torch's CUDA build (`python -m tests.fakegpu install`). No figure is a real card's: the
share told is held against the truth of the same card, the rate against the program's own events.
"""

import argparse
import tempfile
from pathlib import Path

from advisor.model import MeasurePlan, Run
from advisor.report.bottleneck import diagnose
from tests import fakegpu
from tests.fakegpu.measuring import TWENTY, Measured, measure

HEAD = ("program", "card", "rate", "off", "computed", "told", "NVML", "copied in", "cause")
PLAN = MeasurePlan(measure_s=2.0, min_steps=8)


def main() -> int:
    """1 if a program could not be measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("programs", nargs="*", default=TWENTY, metavar="PROGRAM")
    parser.add_argument("--cards", nargs="+", default=("rtx-3090", "rtx-4060", "h100"))
    args = parser.parse_args()
    if why := fakegpu.missing():
        raise SystemExit(why)
    print(f"| {' | '.join(HEAD)} |\n|:--|:--|{'--:|' * 6}:--|", flush=True)
    complete = True
    for card in args.cards:
        for program in args.programs:
            with tempfile.TemporaryDirectory() as folder, fakegpu.Cards(card) as cards:
                words = ("cuda_zoo.py", *program.split())
                found = measure(Path(folder) / "trial", cards, *words, plan=PLAN)
                print(row(program, card, found), flush=True)
                complete &= isinstance(found.result, Run)
    return int(not complete)


def row(program: str, card: str, found: Measured) -> str:
    """A line of the table."""
    if not isinstance(found.result, Run):
        return f"| {program} | {card} | {found.result.kind} |{' |' * 6}"
    run, own, diagnosis = found.run, found.own_rate(), diagnose([found.run] * 2)
    nvml = run.telemetry.gpu_util_pct
    cells = (
        program,
        card,
        f"{run.units_per_s:,.0f}/s",
        f"{run.units_per_s / own - 1:+.1%}" if own else "-",
        f"{found.busy():.1%}",
        f"{run.shares.compute or 0:.1%}",
        "-" if nvml is None else f"{nvml:.0f} %",
        f"{found.busy('to_device'):.1%}",
        diagnosis.name if diagnosis else "-",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    raise SystemExit(main())
