"""The report of a search that ended."""

from pathlib import Path

from advisor.machine import target
from advisor.machine.target import Target
from advisor.model import Machine
from advisor.patches import proven_advice
from advisor.report import build
from advisor.report.schema import Report
from advisor.report.verdict import FinishedTuning
from tests.support.simulator.engine import QUIET_MACHINE
from tests.support.simulator.search import FormulaSearch


def reported(
    search: FormulaSearch,
    folder: Path,
    machine: Machine = QUIET_MACHINE,
    aimed: Target | None = None,
) -> Report:
    """The report that `optimize` would write."""
    return build.optimize_report(
        FinishedTuning(
            stop=search.stop,
            state=search.state,
            lab=search.executor,
            winner=search.winner,
            decisions=search.all_decisions,
            advice=proven_advice(search.state, search.executor.program),
            machine=machine,
            diff="",
            configs=(folder / "train.yaml",),
            report=folder / "report.md",
            written=(),
            dry_run=True,
            command="python train.py",
            target=aimed or target.resolve("auto", machine),
            wall_s=1.0,
        )
    )
