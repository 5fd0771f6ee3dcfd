"""CPUs that workers and threads share: where neither gains alone, both are tried at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from advisor.model import Failure
from advisor.report import advised
from tests.support.simulator.engine import RecordedEngine
from tests.support.simulator.search import formula_search, on_formula
from tests.tuner.whatifs import CODED, CONFIG, LOADER, ON_CPU, ON_CUDA, advice_of, tried

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.model import Run, Trial

MODEL = "import torch\n\nmodel = torch.nn.Linear(2, 2)\nmodel(torch.zeros(1, 2))\n"


def crowded(*sharing: str, **more: Any) -> RecordedEngine:
    """On four CPUs that the model takes; workers gain only where fewer threads leave them room."""
    observed = {**ON_CPU, "model_site": "model.py:4"}
    more.setdefault("switches", dict.fromkeys(sharing, 2.0))
    return on_formula(
        more.pop("kind", RecordedEngine),
        contention=1.5,
        observed=observed,
        step_kind="optimizer step",
        **more,
    )


def test_workers_and_fewer_threads_are_tried_at_once(tmp_path: Path) -> None:
    """Neither gains alone; the patch sets both, each where it stands."""
    (tmp_path / "train.py").write_text(LOADER)
    (tmp_path / "model.py").write_text(MODEL)
    engine = crowded("loader.num_workers=1,threads=3@train.py:1", coded=CODED, unit_s=0.002)
    search = formula_search(tmp_path, engine, CONFIG, cpus=4, gpu=False)
    (advice,) = advice_of(search)
    assert advice.title == "1 worker of the DataLoader and 3 threads of torch"
    assert advice.patch is not None
    assert "+    num_workers=1" in advice.patch
    assert "+torch.set_num_threads(3)" in advice.patch
    assert "`torch.set_num_threads(3)`" in advised.advised(advice)


class Lucky(RecordedEngine):
    """The first process with more workers alone has a good moment."""

    def run(self, trial: Trial) -> Run | Failure:
        """As it is, and that once half as fast again as the original."""
        found = super().run(trial)
        whatif = trial.plan.whatif or ""
        if "num_workers" not in whatif or "threads" in whatif or isinstance(found, Failure):
            return found
        if sum("num_workers" in (each.trial.plan.whatif or "") for each in self.asked) > 1:
            return found
        original = self.asked[0]
        rate = 1.5 * on_formula(coded=CODED, unit_s=0.002).run(original.trial).units_per_s
        return replace(found, units_per_s=rate)


def test_workers_that_were_lucky_alone_do_not_keep_threads_from_being_shared(
    tmp_path: Path,
) -> None:
    """What their pairs refute is as if it had not been faster."""
    (tmp_path / "train.py").write_text(LOADER)
    split = "loader.num_workers=1,threads=3@train.py:1"
    engine = crowded(split, coded=CODED, unit_s=0.002, kind=Lucky)
    search = formula_search(tmp_path, engine, CONFIG, cpus=4, gpu=False)
    assert any(p.kind == "loader" and p.outcome for p in search.standing.proposals)
    (advice,) = advice_of(search)
    assert advice.title == "1 worker of the DataLoader and 3 threads of torch"


def test_workers_of_the_config_are_shared_with_by_a_patch_of_both(tmp_path: Path) -> None:
    """The config gets the workers, the code the threads."""
    (tmp_path / "model.py").write_text(MODEL)
    engine = crowded("threads=3", coded={"batch_size": 4}, unit_s=0.002)
    text = "num_workers: 0\n"
    search = formula_search(tmp_path, engine, text, cpus=4, gpu=False)
    assert search.winner.changes == ()
    advice = next(a for a in advice_of(search) if a.kind == "sharing")
    assert advice.patch is not None
    assert "+num_workers: 1" in advice.patch
    assert "+torch.set_num_threads(3)" in advice.patch


def test_what_keeps_shared_workers_busy_is_tried_on_top(tmp_path: Path) -> None:
    """Workers that are started anew with each pass lose what they gained."""
    split = "loader.num_workers=1{}threads=3@train.py:1"
    kept = ",loader.persistent_workers=1,"
    faster = {split.format(","): 2.0, split.format(kept): 4.0}
    engine = crowded(coded=CODED, unit_s=0.002, switches=faster)
    search = formula_search(tmp_path, engine, CONFIG, cpus=4, gpu=False)
    (proposal,) = (p for p in search.standing.proposals if p.kind == "sharing")
    assert dict(proposal.data)["persistent_workers"] is True


def test_nothing_is_shared_where_a_card_computes_or_nothing_waits(tmp_path: Path) -> None:
    """Threads are no rivals of workers there."""
    for more, gpu in (({"observed": ON_CUDA}, True), ({"load_s": 1e-6}, False)):
        engine = on_formula(coded=CODED, **{"observed": ON_CPU, **more})
        formula_search(tmp_path, engine, CONFIG, cpus=4, gpu=gpu)
        assert not any("num_workers=1,threads" in each for each in tried(engine))
