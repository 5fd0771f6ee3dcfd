"""The search on recorded surfaces of real programs, beside the rules that need no thought.

    python -m benchmarks.surfaces record [NAME ...]   # on an idle machine; all take 25 minutes
    python -m benchmarks.surfaces                     # the table, from what was recorded
    python -m benchmarks.surfaces bounded             # and what a bound on latency does to it

A surface is a grid of batch and workers with several fresh processes a cell, kept with its machine
and date in `benchmarks/results/surfaces/NAME.json`. On it the truth is a cell's median rate, and
its noise is what the program really had: a rule is given the recorded runs, one after another.

The file is written after every process: a recording that was cut goes on where it was, and the
table leaves out what is not whole. To what was recorded elsewhere nothing is added.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import random
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from advisor import objective
from advisor.executor.engines.local import LocalEngine
from advisor.executor.requests import TrialRequest, Variant
from advisor.model import Machine, MeasurePlan, Run
from advisor.stats import two_sample_interval
from advisor.tuner.state import MIN_STEPS, SAMPLER_FORWARDS
from benchmarks.search_quality import RULES, Values, searched
from benchmarks.surface_programs import SPECS, Spec, at, laid_out
from tests.support.simulator.engine import GridPoint, RecordedEngine, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.simulator.search import FormulaSearch

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "benchmarks" / "results" / "surfaces"
PROCESSES = 5
"""A cell."""
ALPHA = 0.025
"""That a cell is told from the best although it is as good."""
TURNS = 40
"""Times that each rule searches a surface, with its cells' runs in other orders."""


def main() -> None:
    """Record, or print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("action", nargs="?", choices=["record", "bounded"])
    parser.add_argument("names", nargs="*", help=", ".join(SPECS))
    parser.add_argument("--window", type=float, default=1.5, help="seconds measured in a process")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    args = parser.parse_args()
    if args.action == "bounded":
        bounded()
    elif args.action:
        for name in args.names or SPECS:
            record(name, SPECS[name], args.window, args.processes)
    else:
        table()


# --- recording ----------------------------------------------------------------------------


def record(name: str, spec: Spec, window_s: float, processes: int) -> None:
    """Every cell once, in an order of chance, then again: drift is no cell's own."""
    kept = KEPT / f"{name}.json"
    with tempfile.TemporaryDirectory(prefix="surface-") as folder, LocalEngine() as engine:
        program = laid_out(spec, Path(folder))
        found = Recording.of(kept, engine.machine(), spec, window_s, processes)
        for turn in range(processes):
            rest = random.Random(f"{name} {turn}").sample(spec.cells[1:], len(spec.cells) - 1)
            for number, values in enumerate([spec.cells[0], *rest]):
                if len(found.runs_at(values)) > turn:
                    continue
                id_ = f"{turn}-{number}"
                request = TrialRequest(
                    variant=Variant(candidate=at(spec, program, values)),
                    purpose="search",
                    plan=found.plan(values),
                )
                run = engine.run(program.trial(id_, request, engine.scratch(id_)))
                told = f"{run.units_per_s:.4g}" if isinstance(run, Run) else run.evidence
                print(f"{name} {turn + 1}/{processes} {values}: {told}", file=sys.stderr)
                if isinstance(run, Run):
                    found = found.plus(values, run)
                    found.write(kept)
                elif not found.cells:
                    msg = f"{name} does not run: {run.evidence}\n{run.log_tail}"
                    raise SystemExit(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What was recorded of one program so far."""

    spec: Spec
    machine: Machine
    window_s: float
    processes: int
    """Of a cell, when it is whole."""
    cells: tuple[GridPoint, ...] = ()

    @classmethod
    def of(
        cls, path: Path, machine: Machine, spec: Spec, window_s: float, processes: int
    ) -> Recording:
        """What an earlier call left at `path`. Refused where that was elsewhere, or otherwise."""
        new = cls(spec=spec, machine=machine, window_s=window_s, processes=processes)
        if not path.exists():
            return new
        recorded = Table.read(path)
        said = json.loads(path.read_text())["recorded"]
        alike = (machine.cpu_model, machine.cpus, window_s)
        known = recorded.machine()
        if (known.cpu_model, known.cpus, said["window_s"]) != alike:
            msg = f"{path} was recorded on another machine or with another window: remove it first"
            raise SystemExit(msg)
        return replace(new, cells=tuple(c for c in recorded.cells if c.values in spec.cells))

    def runs_at(self, values: Values) -> tuple[Run, ...]:
        """Of one cell, in the order in which they were recorded."""
        found = (cell.outcomes for cell in self.cells if cell.values == values)
        return tuple(run for run in next(found, ()) if isinstance(run, Run))

    def plus(self, values: Values, run: Run) -> Recording:
        """With one more."""
        cell = GridPoint(values=dict(values), outcomes=(*self.runs_at(values), bare(run)))
        others = (each for each in self.cells if each.values != values)
        return replace(self, cells=(*others, cell))

    def plan(self, values: Values) -> MeasurePlan:
        """The first cell is measured as `optimize` does the original: one whole item, of which the
        forwards of a sampler are known for all others, and the loader alone."""
        first = self.spec.cells[0]
        plan = MeasurePlan(measure_s=self.window_s, min_steps=MIN_STEPS)
        if values == first:
            counts = self.spec.counts
            return replace(
                plan, whole_batches=1, ceilings_workers=counts, ceilings_s=0.5 if counts else 0.0
            )
        forwards = self.runs_at(first)[0].effects.forwards_per_unit or 1.0
        return replace(plan, forwards_per_unit=forwards if forwards >= SAMPLER_FORWARDS else None)

    def write(self, path: Path) -> None:
        """All of it, or what was there before."""
        kept = {
            "recorded": {
                "date": datetime.now(UTC).date().isoformat(),
                "command": ["python", *self.spec.command],
                "window_s": self.window_s,
                "processes": self.processes,
                "cells": len(self.spec.cells),
            },
            "machine": asdict(self.machine),
            "cells": [asdict(cell) for cell in self.cells],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(kept) + "\n")
        part.replace(path)


def bare(run: Run) -> Run:
    """Without what the search on a surface never reads: outputs, and what went in and out."""
    effects = replace(run.effects, inputs=(), outputs=())
    return replace(run, stdout_tail="", results=(), files_created=(), effects=effects)


# --- the table ----------------------------------------------------------------------------


class Recorded:
    """A recorded surface as a problem: the truth of a cell is the median of its runs."""

    def __init__(self, path: Path) -> None:
        recorded = Table.read(path)
        said = json.loads(path.read_text())["recorded"]
        self._cells, self._machine = recorded.cells, recorded.machine()
        self.whole = len(self._cells) == said["cells"] and all(
            len(cell.outcomes) >= said["processes"] for cell in self._cells
        )
        self.seed = 0
        self.batches = self._values("batch_size")
        self.workers = self._values("num_workers")
        both = {"batch_size": self.batches, "num_workers": self.workers}
        self.start = {name: values[0] for name, values in both.items() if values}
        self.card_gib = self._machine.ram_gib
        self.cpus = self._machine.cpus
        self._runs = {
            json.dumps(cell.values, sort_keys=True): [
                run.units_per_s for run in cell.outcomes if isinstance(run, Run)
            ]
            for cell in self._cells
        }
        self._rates = {values: statistics.median(runs) for values, runs in self._runs.items()}
        self.best = max(self._rates.values())

    def _values(self, name: str) -> list[int]:
        return sorted({int(str(c.values[name])) for c in self._cells if name in c.values})

    def true_rate(self, values: Values) -> float | None:
        """Median of the cell; None where nothing was recorded."""
        return self._rates.get(json.dumps(values, sort_keys=True))

    def level(self, values: Values) -> bool:
        """Whether the runs cannot tell this cell from the best: its median is one by luck, too."""
        mine = self._runs.get(json.dumps(values, sort_keys=True))
        best = self._runs[max(self._rates, key=lambda each: self._rates[each])]
        if not mine:
            return False
        logs = [[math.log(rate) for rate in runs] for runs in (mine, best)]
        return two_sample_interval(logs[0], logs[1], ALPHA).high >= 0

    def engine(self) -> RecordedEngine:
        """The runs of every cell in the order of the seed."""
        rng = random.Random(self.seed)
        cells = [
            GridPoint(values=c.values, outcomes=tuple(rng.sample(c.outcomes, len(c.outcomes))))
            for c in self._cells
        ]
        return RecordedEngine(Table(cells, self._machine), seed=self.seed)


def whole_surfaces() -> Iterator[tuple[str, Recorded]]:
    """Name and surface of those that were recorded to their end."""
    for path in sorted(KEPT.glob("*.json")):
        surface = Recorded(path)
        if surface.whole:
            yield path.stem, surface
        else:
            print(f"{path.stem} is not whole yet: record it again", file=sys.stderr)


def bounded() -> None:
    """The batch that throughput alone takes, and with half of its latency as a bound."""
    logging.disable()
    print(
        "| surface | batch by throughput | p95 ms | bound ms | batch | p95 ms in its proof | gain |"
    )
    print("|:--|--:|--:|--:|--:|--:|:--|")
    for name, surface in whole_surfaces():
        with tempfile.TemporaryDirectory() as folder:
            free = searched(surface, Path(folder))
            slowest_ms = max(told_ms(free), default=0.0)
            aim = objective.parse("throughput", [f"latency_p95<={slowest_ms / 2:.3f}ms"])
            inside = searched(surface, Path(folder), aim)
            proofs = inside.state.confirmations
            gain = proofs[-1].interval(aim) if proofs and inside.winner.changes else None
        print(
            f"| {name} | {batch_of(free, surface)} | {slowest_ms:.2f} | {slowest_ms / 2:.2f} "
            f"| {batch_of(inside, surface)} | {max(told_ms(inside), default=0.0):.2f} "
            f"| {f'{gain.estimate:.2f} ({gain.low:.2f} to {gain.high:.2f})' if gain else '-'} |"
        )


def told_ms(search: FormulaSearch) -> list[float]:
    """95 of a hundred latencies in each run of what was proven."""
    runs = search.state.confirmations[-1].runs("after") if search.state.confirmations else ()
    return [run.latency_p95_ms for run in runs if run.latency_p95_ms is not None]


def batch_of(search: FormulaSearch, surface: Recorded) -> int:
    """The batch that would be written."""
    return int(search.values.get("batch_size", surface.start["batch_size"]))


def table() -> None:
    """Of each rule on each surface: share of the best cell, how often it was a cell that the runs
    cannot tell from the best, and processes."""
    logging.disable()
    print("| surface | rule | median share of the best cell | worst tenth | level | processes |")
    print("|:--|:--|--:|--:|--:|--:|")
    for recorded, surface in whole_surfaces():
        for name, rule in RULES.items():
            shares, used, level = [], [], 0
            for turn in range(TURNS):
                surface.seed = turn
                with tempfile.TemporaryDirectory() as folder:
                    values, processes = rule(surface, Path(folder))
                shares.append((surface.true_rate(values) or 0.0) / surface.best)
                used.append(processes)
                level += surface.level(values)
            tenth = sorted(shares)[: max(1, TURNS // 10)]
            print(
                f"| {recorded} | {name} | {statistics.median(shares):.1%} "
                f"| {statistics.fmean(tenth):.1%} | {level} of {TURNS} "
                f"| {statistics.fmean(used):.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
