"""The scaling ladder of the fire guide, each rung measured: rate, and what fills the memory.

    python -m benchmarks.ladder [--rungs N]

Each rung is the rung before it with more: batch, then width and depth, then the decoder, then
gradient checkpointing. One process a rung; memory is exact, the rate is that of one run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from advisor.model import Candidate, Failure, MeasurePlan, Run, Trial
from advisor.trials import run_trial

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "config" / "emberformer.yaml"
MIB = 2**20
PARTS = ("model", "gradients", "optimizer", "activations", "workspace")
PLAN = MeasurePlan(measure_s=2.0, min_steps=8, ceilings_workers=(0,), ceilings_s=0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One step up: what it sets, by `section.key`."""

    name: str
    sets: dict[str, Any] = field(default_factory=dict)


RUNGS = (
    Rung(name="as shipped"),
    Rung(name="batch 32", sets={"data.batch_size": 32, "train.accumulation_steps": 1}),
    Rung(
        name="twice the width and depth",
        sets={
            "model.d_model": 64,
            "model.nhead": 8,
            "model.num_layers": 4,
            "model.dim_feedforward": 128,
        },
    ),
    Rung(name="decoder of 32 channels", sets={"model.decoder_width": 32}),
    Rung(name="gradient checkpointing", sets={"model.gradient_checkpointing": True}),
)


def measured(folder: Path, number: int) -> Run | Failure:
    """The training program on rung `number`, with all that the rungs below it set."""
    cfg = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    for rung in RUNGS[: number + 1]:
        for path, value in rung.sets.items():
            section, key = path.split(".")
            cfg[section][key] = value
    config = folder / f"rung{number}.yaml"
    config.write_text(yaml.safe_dump(cfg))
    module = "benchmarks.workloads.emberformer.run"
    return run_trial(
        Trial(
            id=f"{number:03d}",
            purpose="profile",
            label=RUNGS[number].name,
            candidate=Candidate(),
            command=(sys.executable, "-m", module, "-p", "train", "-c", str(config)),
            cwd=str(folder),
            scratch=str(folder / f"scratch{number}"),
            plan=PLAN,
            env=(("PYTHONPATH", str(ROOT)),),
        )
    )


def main(argv: list[str] | None = None) -> None:
    """Prints one row a rung."""
    parser = argparse.ArgumentParser(prog="ladder")
    parser.add_argument("--rungs", type=int, default=len(RUNGS), help="only the first so many")
    args = parser.parse_args(argv)
    print("| rung | samples/s |", " MiB | ".join(PARTS), "MiB | together |")
    print("|:--|--:|" + "--:|" * (len(PARTS) + 1))
    with tempfile.TemporaryDirectory() as folder:
        for number, rung in enumerate(RUNGS[: args.rungs]):
            run = measured(Path(folder), number)
            if isinstance(run, Failure) or run.footprint is None:
                why = run.evidence if isinstance(run, Failure) else "not measured"
                print(f"| {rung.name} | {why} |", flush=True)
                continue
            held = [f"{getattr(run.footprint, part) / MIB:.2f}" for part in PARTS]
            whole = f"{run.footprint.whole / MIB:.2f} MiB"
            print(f"| {rung.name} | {run.units_per_s:.0f} |", " | ".join(held), f"| {whole} |",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
