"""The search on recorded surfaces of real programs, beside rules that need no thought.

    python -m benchmarks.surfaces

A surface is a grid of batch and workers with several fresh processes a cell, kept with its machine
and date in `benchmarks/results/surfaces/NAME.json`. On it the truth is a cell's median rate, and
its noise is the program's own: a rule gets the recorded runs, one after another.
A second time half of the batches fit: the memory is made, the rates are the recorded ones.
"""

import itertools
import json
import logging
import math
import random
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

from advisor.model import Run
from advisor.stats import two_sample_interval
from benchmarks.search_quality import RULES, Problem, Values
from tests.support.simulator.engine import GridPoint, RecordedEngine, Table

KEPT = Path(__file__).resolve().parent / "results" / "surfaces"
ALPHA = 0.025
"""That a cell is told from the best although it is as good."""
TURNS = 40
"""Times that each rule searches a surface, with its cells' runs in other orders."""


class Recorded:
    """A recorded surface: the truth of a cell is the median of its runs."""

    def __init__(self, path: Path, *, half_fits: bool) -> None:
        self._table = Table.read(path)
        self._card_gib = self._table.machine.ram_gib
        if half_fits:
            batches = self._values("batch_size")
            self._limit_to(batches[len(batches) // 2])
        self._runs = {
            json.dumps(cell.values, sort_keys=True): [
                run.units_per_s for run in cell.outcomes if isinstance(run, Run)
            ]
            for cell in self._table.cells
        }
        self._rates = {values: statistics.median(runs) for values, runs in self._runs.items()}
        self.best = max(self._rates.values())

    def _limit_to(self, batch: int) -> None:
        """Keep the batches up to this one; a step takes 1 GiB and 0.1 GiB an item."""
        gib = {value: 1.0 + 0.1 * value for value in self._values("batch_size") if value <= batch}
        cells = [
            replace(
                cell, outcomes=tuple(replace(run, peak_mem_gib=needed) for run in cell.outcomes)
            )
            for cell in self._table.cells
            if (needed := gib.get(int(str(cell.values["batch_size"]))))
        ]
        self._table = replace(self._table, cells=tuple(cells))
        self._card_gib = gib[batch]

    def problem(self, seed: int) -> Problem:
        """The surface with the runs of every cell in the order of the seed."""
        found = {name: self._values(name) for name in ("batch_size", "num_workers")}
        axes = {name: values for name, values in found.items() if values}
        return Problem(
            engine=lambda: self._engine(seed),
            true_rate=self.true_rate,
            seed=seed,
            card_gib=self._card_gib,
            cpus=self._table.machine.cpus,
            axes=axes,
            start={name: values[0] for name, values in axes.items()},
        )

    def _values(self, name: str) -> list[int]:
        cells = self._table.cells
        return sorted({int(str(c.values[name])) for c in cells if name in c.values})

    def _engine(self, seed: int) -> RecordedEngine:
        rng = random.Random(seed)
        cells = tuple(
            GridPoint(values=c.values, outcomes=tuple(rng.sample(c.outcomes, len(c.outcomes))))
            for c in self._table.cells
        )
        return RecordedEngine(replace(self._table, cells=cells), seed=seed)

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


def main() -> None:
    """Print a row for each rule on each surface.

    `level`: how often the runs cannot tell the chosen cell from the best.
    """
    logging.disable()
    print("| surface | rule | median share of the best cell | worst tenth | level | processes |")
    print("|:--|:--|--:|--:|--:|--:|")
    for path, half_fits in itertools.product(sorted(KEPT.glob("*.json")), (False, True)):
        surface = Recorded(path, half_fits=half_fits)
        title = f"{path.stem}, half fits" if half_fits else path.stem
        for name, rule in RULES.items():
            shares, used, level = [], [], 0
            for turn in range(TURNS):
                with tempfile.TemporaryDirectory() as folder:
                    values, processes = rule(surface.problem(turn), Path(folder))
                shares.append((surface.true_rate(values) or 0.0) / surface.best)
                used.append(processes)
                level += surface.level(values)
            tenth = sorted(shares)[: max(1, TURNS // 10)]
            print(
                f"| {title} | {name} | {statistics.median(shares):.1%} "
                f"| {statistics.fmean(tenth):.1%} | {level} of {TURNS} "
                f"| {statistics.fmean(used):.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
