"""Knobs by experiment, on programs that are formulas: what they follow becomes a knob."""

from pathlib import Path
from typing import Any

from advisor.history import History
from advisor.model import Failure, Run, Trial
from advisor.tuner import policy
from tests.support.simulator.engine import RecordedEngine
from tests.support.simulator.formula import Formula
from tests.support.simulator.search import FormulaSearch, formula_search, on_formula
from tests.tuner.configs import TEST

NAMES = {"batch_size": "zorp", "num_workers": "vex", "accumulation_steps": "frell"}
"""What these programs call their settings."""


def search(folder: Path, text: str, **formula: Any) -> FormulaSearch:
    """A search over a program that waits for its loader and gains by larger batches."""
    workload = formula.pop("workload", TEST)
    limits = {name: formula.pop(name) for name in ("budget_s",) if name in formula}
    engine = on_formula(**{"names": NAMES, "launch_s": 0.02, **formula})
    return formula_search(folder, engine, text, workload=workload, **limits)


def discovered(found: FormulaSearch) -> dict[str, str]:
    """Kind by path of what was found by experiment."""
    return {each.move.suspect.path: each.sign.kind for each in found.state.followed}


def values_moved(found: FormulaSearch) -> list[dict[str, Any]]:
    """Of each process of the experiment."""
    return [
        {change.path: change.new for change in attempt.request.variant.candidate.changes}
        for attempt in found.asked("effects")
    ]


def test_knobs_with_made_up_names_are_found_and_tuned(tmp_path) -> None:
    """One process tells both apart from decoys of the same values; then they are like any other."""
    text = "plum: {zorp: 6, grault: 6, vex: 2}\nquonk: 2\n"
    found = search(tmp_path, text)
    assert discovered(found) == {"plum.zorp": "batch_size", "plum.vex": "num_workers"}
    assert len(found.asked("effects")) == 1
    assert set(values_moved(found)[0]) == {"plum.zorp", "plum.grault", "plum.vex", "quonk"}
    assert found.values["zorp"] > 6
    assert found.values["vex"] > 2
    assert found.decisions["zorp"].outcome == "changed"
    assert not {"grault", "quonk"} & set(found.values)


def test_the_next_call_finds_the_experiment_in_its_history(tmp_path) -> None:
    """However long its own originals took."""
    text, kept = "zorp: 6\nvex: 2\n", History(tmp_path / "history.sqlite", print)
    for process_s in (1.0, 1.1):
        engine = on_formula(names=NAMES, process_s=process_s)
        found = formula_search(tmp_path, engine, text, workload=TEST, history=kept)
    (experiment,) = found.asked("effects")
    assert experiment.reused
    assert discovered(found) == {"zorp": "batch_size", "vex": "num_workers"}


def test_names_that_tell_of_everything_cost_no_process(tmp_path) -> None:
    """The experiment is for what the program visibly has and nobody named."""
    names = {"batch_size": "batch_size", "num_workers": "num_workers"}
    text = "batch_size: 6\nnum_workers: 2\ngrault: 6\nquonk: 2\n"
    assert not search(tmp_path, text, names=names).asked("effects")


def test_the_effective_batch_is_kept_for_what_was_found(tmp_path) -> None:
    """Batch and accumulation have made-up names, and their product still stays."""
    text = "zorp: 4\nfrell: 8\nvex: 0\n"
    found = search(tmp_path, text, workload={"phase": "train"}, load_s=1e-6)
    assert discovered(found) == {"zorp": "batch_size", "frell": "grad_accum", "vex": "num_workers"}
    assert found.values["zorp"] > 4
    assert found.values["zorp"] * found.values["frell"] == 32


class Fragile(RecordedEngine):
    """A network in which `hesp` must divide `wisp`, or be half of it; loaders come first or not."""

    def __init__(
        self, *args: Any, says: str = "", loads_first: bool = False, half: bool = False, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self.says, self.loads_first, self.half = says, loads_first, half

    def run(self, trial: Trial) -> Run | Failure:
        answer = super().run(trial)
        values = self.asked[-1].values
        width, heads = (int(str(values.get(name, 1))) for name in ("wisp", "hesp"))
        fits = width == 2 * heads if self.half else width % heads == 0
        if fits or isinstance(answer, Failure):
            return answer
        return Failure(
            kind="crash-start",
            evidence=self.says.format(width=width, heads=heads),
            effects=answer.effects if self.loads_first else None,
            next_step="none",
            wall_s=1.0,
        )


def fragile(folder: Path, text: str, **how: Any) -> FormulaSearch:
    """A search over a program that does not bear every value; `wisp` and `hesp` are decoys."""
    formula = Formula(
        process_s=1.0, names=NAMES, launch_s=0.02, coded=how.pop("coded", {"zorp": 6})
    )
    return formula_search(folder, Fragile(formula, **how), text, workload=TEST)


def test_after_a_crash_values_are_the_other_way_round(tmp_path) -> None:
    """One of two had to divide the other; nothing said which."""
    found = fragile(tmp_path, "hesp: 6\nwisp: 6\nzorp: 6\nvex: 2\n")
    assert discovered(found) == {"zorp": "batch_size", "vex": "num_workers"}
    assert len(found.asked("effects")) <= policy.FOLLOWING_PROCESSES
    found = fragile(tmp_path, "wisp: 6\nhesp: 6\nzorp: 6\nvex: 2\n")
    assert discovered(found) == {"zorp": "batch_size", "vex": "num_workers"}
    first, second = values_moved(found)
    assert first["wisp"] < first["hesp"]
    assert second["wisp"] > second["hesp"]


def test_after_too_much_values_are_smaller(tmp_path) -> None:
    """A card that holds the batch of the config and not twice as much."""
    found = search(tmp_path, "zorp: 6\nvex: 2\n", base_gib=0.0, unit_gib=1.0, card_gib=11.0)
    first, second = values_moved(found)
    assert first["zorp"] > 6 > second["zorp"]
    assert discovered(found) == {"zorp": "batch_size", "vex": "num_workers"}


def test_what_a_crash_names_is_left_as_it_is(tmp_path) -> None:
    """A width that has to be twice the heads has to stay what it is."""
    text = "wisp: 6\nhesp: 3\nzorp: 6\nvex: 2\n"
    found = fragile(tmp_path, text, half=True, says="{width} is not twice {heads}")
    first, second = values_moved(found)
    assert "wisp" in first
    assert "wisp" not in second
    assert discovered(found) == {"zorp": "batch_size", "vex": "num_workers"}


def test_the_sampler_is_followed_to_the_end_of_an_item(tmp_path) -> None:
    """Forwards a unit are only known then; a declared measure makes them worth it."""
    quality = {"psnr": {"pattern": "quality: ([0-9.]+)", "tolerance": "50%"}}
    names = {**NAMES, "steps": "mimsy"}
    found = search(
        tmp_path, "batch_size: 2\nnum_workers: 0\nmimsy: 100\ngrault: 100\n",
        names={"batch_size": "batch_size", "num_workers": "num_workers", "steps": names["steps"]},
        sampler=True, quality=lambda steps: 1.0, workload={"phase": "test", "quality": quality},
    )  # fmt: skip
    (experiment,) = found.asked("effects")[:1]
    assert experiment.request.plan.whole_batches == 1
    assert experiment.request.plan.forwards_per_unit is None
    assert discovered(found) == {"mimsy": "timesteps"}
