"""Programs whose code, not whose config, says what could be faster, and what was made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from advisor.patches import proven_advice
from tests.support.simulator.search import FormulaSearch, on_formula

if TYPE_CHECKING:
    from advisor.model import Advice
    from tests.support.simulator.engine import RecordedEngine

CODED = {"batch_size": 4, "num_workers": 0}
CONFIG = "lr: 0.1\n"
LOADER = "l = DataLoader(\n    data,\n    batch_size=4,\n)\n"
ON_CUDA = {"device": "cuda:0", "cudnn_benchmark": False, "channels_last": False, "tf32": False}
ON_CPU = {"device": "cpu", "threads": 4, "loader_site": "train.py:1"}
GUARD = {"numeric-tolerance": "2%"}


def advice_of(search: FormulaSearch) -> tuple[Advice, ...]:
    """What was proven and is not ours to write."""
    return proven_advice(search.state, search.lab.program)


def tried(engine: RecordedEngine) -> list[str]:
    """What-ifs that cost a process, in order, without their site."""
    asked = dict.fromkeys(each.trial.plan.whatif for each in engine.asked)
    return [whatif.partition("@")[0] for whatif in asked if whatif]


def computing(**more: Any) -> RecordedEngine:
    """Training on a GPU that hardly waits for data."""
    observed = {**ON_CUDA, **more.pop("observed", {})}
    return on_formula(
        coded=CODED, load_s=1e-6, observed=observed, step_kind="optimizer step", **more
    )
