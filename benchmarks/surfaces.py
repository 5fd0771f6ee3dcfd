"""The search on recorded surfaces of real programs, beside rules that need no thought.

    python -m benchmarks.surfaces

A surface is a grid of batch and workers with several fresh processes a cell, kept with its machine
and date in `benchmarks/results/surfaces/NAME.json`. On it the truth is a cell's median rate, and
its noise is the program's own: a rule gets the recorded runs, one after another.
"""

from __future__ import annotations

import json
import logging
import math
import random
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.model import Run
from advisor.stats import two_sample_interval
from benchmarks.search_quality import RULES, Values
from tests.support.simulator.engine import GridPoint, RecordedEngine, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

KEPT = Path(__file__).resolve().parent / "results" / "surfaces"
ALPHA = 0.025
"""That a cell is told from the best although it is as good."""
TURNS = 40
"""Times that each rule searches a surface, with its cells' runs in other orders."""


class Recorded:
    """A recorded surface as a problem: the truth of a cell is the median of its runs."""

    def __init__(self, path: Path) -> None:
        recorded = Table.read(path)
        self._cells, self._machine = recorded.cells, recorded.machine()
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


def surfaces() -> Iterator[tuple[str, Recorded]]:
    """Name and surface of each record."""
    for path in sorted(KEPT.glob("*.json")):
        yield path.stem, Recorded(path)


def main() -> None:
    """Print a row for each rule on each surface.

    `level`: how often the runs cannot tell the chosen cell from the best.
    """
    logging.disable()
    print("| surface | rule | median share of the best cell | worst tenth | level | processes |")
    print("|:--|:--|--:|--:|--:|--:|")
    for recorded, surface in surfaces():
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
