"""The search on recorded surfaces of real programs, beside the rules that need no thought.

    python -m benchmarks.surfaces record dem_completion   # on an idle machine; runs the whole grid
    python -m benchmarks.surfaces                         # the table, from what was recorded

A surface is a grid of batch and workers with several fresh processes a cell, kept with its machine
and date in `benchmarks/results/surfaces/NAME.json`. On it the truth is a cell's median rate, and
its noise is what the program really had: a rule is given the recorded runs, one after another.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import random
import shutil
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from advisor import documents
from advisor.documents.argv import join
from advisor.engines.local import LocalEngine
from advisor.engines.recorded import Cell, RecordedEngine, Table
from advisor.experiments.attempts import Arm, Ask
from advisor.experiments.program import COMMAND_LINE, Program
from advisor.model import Candidate, Change, MeasurePlan, Run
from benchmarks.search_quality import RULES, Values

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "benchmarks" / "results" / "surfaces"
PROCESSES = 5
"""A cell."""
TURNS = 40
"""Times that each rule searches a surface, with its cells' runs in other orders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A program whose batch and workers are moved."""

    copied: tuple[tuple[str, str], ...]
    """Files and folders of this repository, and their names in the program's folder."""
    command: tuple[str, ...]
    """Behind the interpreter."""
    config: str | None = None
    """None: batch and workers stand on the command line."""
    batch: str
    workers: str
    """Paths of the two."""
    batches: tuple[int, ...]
    counts: tuple[int, ...]
    start: tuple[int, int]
    unit: str


REACH = "benchmarks/reach/programs"
SPECS = {
    "dem_completion": Spec(
        copied=(("benchmarks", "benchmarks"), ("config", "config")),
        command=(
            "-m",
            "benchmarks.workloads.dem_completion.run",
            "-p",
            "test",
            "-c",
            "config/dem_completion.json",
        ),
        config="config/dem_completion.json",
        batch="datasets.test.dataloader.args.batch_size",
        workers="datasets.test.dataloader.args.num_workers",
        batches=(1, 2, 4, 8, 16, 32),
        counts=(0, 1, 2),
        start=(1, 0),
        unit="tile",
    ),
    "restore": Spec(
        copied=(("tests/fixtures/programs/opt_restore.py", "restore.py"),),
        command=("restore.py", "--cfg", "infer.yaml"),
        config="infer.yaml",
        batch="inference.loader.batch_size",
        workers="inference.loader.num_workers",
        batches=(1, 2, 4, 8, 16, 32, 64, 128, 256),
        counts=(0, 1, 2),
        start=(1, 0),
        unit="sample",
    ),
    "masks": Spec(
        copied=(
            (f"{REACH}/click_cli/cli.py", "cli.py"),
            (f"{REACH}/step_clock.py", "step_clock.py"),
        ),
        command=("cli.py", "apply", "--batch-size", "1", "--num-workers", "0", "masks"),
        batch="--batch-size",
        workers="--num-workers",
        batches=(1, 2, 4, 8, 16, 32, 64, 128, 256),
        counts=(0, 1, 2),
        start=(1, 0),
        unit="sample",
    ),
}
MADE = {
    "infer.yaml": "inference:\n  sampler: {num_inference_steps: 60}\n"
    "  loader:\n    batch_size: 1\n    num_workers: 0\noutput_dir: results\n"
}


def main() -> None:
    """Record, or print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("action", nargs="?", choices=["record"])
    parser.add_argument("names", nargs="*", help=", ".join(SPECS))
    parser.add_argument("--window", type=float, default=2.0, help="seconds measured in a process")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    args = parser.parse_args()
    if args.action:
        for name in args.names or SPECS:
            record(name, SPECS[name], args.window, args.processes)
    else:
        table()


# --- recording ----------------------------------------------------------------------------


def record(name: str, spec: Spec, window_s: float, processes: int) -> None:
    """Every cell once, in an order of chance, then again: drift is no cell's own."""
    rng = random.Random(name)
    grid = list(itertools.product(spec.batches, spec.counts))
    runs: dict[tuple[int, int], list[Run]] = {cell: [] for cell in grid}
    with tempfile.TemporaryDirectory(prefix="surface-") as folder, LocalEngine() as engine:
        program = laid_out(spec, Path(folder))
        for turn in range(processes):
            for number, cell in enumerate(rng.sample(grid, len(grid))):
                id_ = f"{turn}-{number}"
                ask = Ask(
                    arm=Arm(candidate=at(spec, program, cell)),
                    purpose="search",
                    plan=MeasurePlan(measure_s=window_s, min_steps=1),
                )
                found = engine.run(program.trial(id_, ask, engine.scratch(id_)))
                told = f"{found.units_per_s:.4g}" if isinstance(found, Run) else found.evidence
                print(f"{name} {turn + 1}/{processes} {cell}: {told}", file=sys.stderr)
                if isinstance(found, Run):
                    runs[cell].append(found)
        machine = engine.machine()
    KEPT.mkdir(parents=True, exist_ok=True)
    kept = {
        "recorded": {
            "date": datetime.now(UTC).date().isoformat(),
            "command": ["python", *spec.command],
            "window_s": window_s,
        },
        "machine": asdict(machine),
        "cells": [
            {
                "values": {"batch_size": batch, "num_workers": workers},
                "outcomes": [asdict(bare(run)) for run in found],
            }
            for (batch, workers), found in runs.items()
            if found
        ],
    }
    (KEPT / f"{name}.json").write_text(json.dumps(kept) + "\n")


def bare(run: Run) -> Run:
    """Without what the search on a surface never reads: outputs, and what went in and out."""
    effects = replace(run.effects, inputs=(), outputs=())
    return replace(run, stdout_tail="", results=(), effects=effects)


def laid_out(spec: Spec, folder: Path) -> Program:
    """The program in `folder`, as `optimize` would see it."""
    for source, name in spec.copied:
        ignored = shutil.ignore_patterns("results", "__pycache__")
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, folder / name, ignore=ignored)
        else:
            shutil.copy(ROOT / source, folder / name)
    for name, text in MADE.items():
        (folder / name).write_text(text)
    (folder / ".git").mkdir()
    line = documents.parse(join([sys.executable, *spec.command]), "argv", COMMAND_LINE)
    config = documents.read(folder / spec.config) if spec.config else None
    return Program(config=config, command_line=line, cwd=folder, unit=spec.unit)


def at(spec: Spec, program: Program, cell: tuple[int, int]) -> Candidate:
    """The change to a cell."""
    document = program.config or program.command_line
    moved = zip((spec.batch, spec.workers), ("batch_size", "num_workers"), cell, strict=True)
    return Candidate().with_changes(
        *(
            Change(
                document=document.name,
                path=path,
                kind=kind,
                knob_class="free",
                old=document.scalars[path].value,
                new=value,
            )
            for path, kind, value in moved
        )
    )


# --- the table ----------------------------------------------------------------------------


class Recorded:
    """A recorded surface as a problem: the truth of a cell is the median of its runs."""

    def __init__(self, path: Path) -> None:
        recorded = Table.read(path)
        self._cells, self._machine = recorded.cells, recorded.machine()
        self.seed = 0
        self.batches = sorted({int(str(c.values["batch_size"])) for c in self._cells})
        self.workers = sorted({int(str(c.values["num_workers"])) for c in self._cells})
        self.start = {"batch_size": self.batches[0], "num_workers": self.workers[0]}
        self.card_gib = self._machine.ram_gib
        self.cpus = self._machine.cpus
        self._rates = {
            json.dumps(cell.values, sort_keys=True): statistics.median(
                run.units_per_s for run in cell.outcomes if isinstance(run, Run)
            )
            for cell in self._cells
        }
        self.best = max(self._rates.values())

    def true_rate(self, values: Values) -> float | None:
        """Median of the cell; None where nothing was recorded."""
        return self._rates.get(json.dumps(values, sort_keys=True))

    def engine(self) -> RecordedEngine:
        """The runs of every cell in the order of the seed."""
        rng = random.Random(self.seed)
        cells = [
            Cell(values=c.values, outcomes=tuple(rng.sample(c.outcomes, len(c.outcomes))))
            for c in self._cells
        ]
        return RecordedEngine(Table(cells, self._machine), seed=self.seed)


def table() -> None:
    """Of each rule on each surface: share of the best cell, and processes."""
    logging.disable()
    print("| surface | rule | median share of the best cell | worst tenth | processes |")
    print("|:--|:--|--:|--:|--:|")
    for path in sorted(KEPT.glob("*.json")):
        surface = Recorded(path)
        for name, rule in RULES.items():
            shares, used = [], []
            for turn in range(TURNS):
                surface.seed = turn
                with tempfile.TemporaryDirectory() as folder:
                    values, processes = rule(surface, Path(folder))
                shares.append((surface.true_rate(values) or 0.0) / surface.best)
                used.append(processes)
            tenth = sorted(shares)[: max(1, TURNS // 10)]
            print(
                f"| {path.stem} | {name} | {statistics.median(shares):.1%} "
                f"| {statistics.fmean(tenth):.1%} | {statistics.fmean(used):.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
