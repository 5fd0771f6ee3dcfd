"""From a search that ended to its report: the verdict, and what its first lines say."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from advisor.executor.requests import TrialRequest, TrialResult, Variant
from advisor.history import History
from advisor.model import Advice, Disturbance, Failure, Interval, MeasurePlan, Neighbour, Run
from advisor.report import advised, rendering, sentences, surroundings
from advisor.tuner.switches import SWITCHES
from tests.report.composing import reported
from tests.runs import a_run
from tests.support.simulator.engine import QUIET_MACHINE, RecordedEngine
from tests.support.simulator.formula import Formula
from tests.support.simulator.search import FormulaSearch, formula_search, on_formula

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.model import Trial
    from advisor.report.model import Report

TEXT = "batch_size: 1\nnum_workers: 0\n"
TEST = {"phase": "test"}
FLAT = {"load_s": 1e-6, "launch_s": 1e-6, "unit_s": 0.01}
"""A program that no batch makes faster."""


def report_of(folder: Path, engine: RecordedEngine, **more: Any) -> Report:
    """The search on `engine`, reported."""
    return reported(formula_search(folder, engine, TEXT, workload=TEST, **more), folder)


def test_a_proven_gain_is_improved_with_its_interval(tmp_path: Path) -> None:
    """The free part is the whole of it here."""
    report = report_of(tmp_path, on_formula(load_s=1e-6))
    assert report.verdict == "improved"
    assert report.gain == report.gain_free
    assert report.gain_quality is None
    assert report.busy == ""
    assert rendering.render(report)


def test_what_was_tried_of_a_setting_is_told_with_what_was_moved_beside_it(tmp_path: Path) -> None:
    """Runs of one batch with other workers are other things that were tried."""
    report = report_of(tmp_path, on_formula(load_s=0.05, launch_s=0.05))
    (batch,) = (entry for entry in report.decisions if entry.path == "batch_size")
    tried = [line.partition(":")[0] for line in batch.evidence]
    assert any(" with num_workers=" in each for each in tried)
    assert len(set(tried)) == len(tried)


def test_unchanged_is_said_where_candidates_ran_and_lost(tmp_path: Path) -> None:
    """And not where the budget left them out."""
    lost = report_of(tmp_path, on_formula(**FLAT))
    assert lost.verdict == "unchanged"
    assert any(trial.purpose == "search" for trial in lost.trials)
    small = report_of(tmp_path, on_formula(**FLAT, process_s=100.0), budget_s=240.0)
    assert small.verdict == "partial"
    assert not any(trial.purpose == "search" for trial in small.trials)
    assert "Call again with --budget" in small.reason


def test_a_proof_that_the_budget_cut_short_is_partial(tmp_path: Path) -> None:
    """Nothing is known of the candidate then."""

    def slower(trial: Trial) -> float:
        return 60.0 if trial.purpose == "confirm" else 1.0

    report = report_of(tmp_path, on_formula(load_s=1e-6, process_s=slower), budget_s=50.0)
    assert report.verdict == "partial"
    assert report.changes == []
    assert "--budget" in report.reason
    assert any("the rest of the proof" in entry for entry in report.skipped)
    assert not any("about 0 s" in entry for entry in report.skipped)


def test_what_was_faster_and_not_proven_is_not_called_no_faster(tmp_path: Path) -> None:
    """The budget bought the search and no round of the proof."""
    engine = on_formula(load_s=1e-6, process_s=lambda t: 9.0 if t.purpose == "search" else 3.0)
    report = report_of(tmp_path, engine, budget_s=36.0)
    assert any(trial.purpose == "search" for trial in report.trials)
    assert not report.comparisons
    assert report.verdict == "partial"
    assert "could not be proven before the budget was spent" in report.reason
    told = re.search(r"--budget (\d+)m", report.reason)
    assert told is not None
    assert int(told[1]) * 60 > 36.0


def test_a_training_batch_that_was_faster_and_not_proven_is_no_nothing(tmp_path: Path) -> None:
    """It is not ours to write, and it is not "nothing was faster" either."""
    engine = on_formula(
        load_s=1e-6,
        step_kind="optimizer step",
        process_s=lambda t: 20.0 if t.purpose == "search" else 8.0,
    )
    report = report_of(tmp_path, engine, budget_s=70.0)
    assert not report.changes
    assert not report.advice
    assert report.verdict == "partial"
    assert "Nothing" not in report.reason
    assert "--budget" in report.reason


def test_nothing_faster_among_what_the_budget_held_names_the_budget_for_the_rest(
    tmp_path: Path,
) -> None:
    """Noise hides what a larger batch gains, and one more was worth a try."""
    noisy = on_formula(
        load_s=1e-6, launch_s=2e-4, unit_s=0.01, noise=0.1, seed=0, process_s=lambda _: 10.0
    )
    report = report_of(tmp_path, noisy, budget_s=100.0)
    assert report.verdict == "partial"
    assert report.reason.startswith("Nothing that was tried is faster")
    assert "--budget 3m" in report.reason


@pytest.mark.parametrize("process_s", [8.0, 14.0])
def test_a_setting_that_the_budget_left_out_is_in_the_verdict(
    tmp_path: Path, process_s: float
) -> None:
    """A loader spent it, and what a larger one would have tried is no "nothing was found"."""
    text = "batch_size: 4\nlr: 0.1\n"

    def said(budget_s: float, history: History) -> tuple[FormulaSearch, Report]:
        engine = on_formula(
            coded={"num_workers": 0}, step_kind="optimizer step", process_s=process_s
        )
        search = formula_search(
            tmp_path, engine, text, budget_s=budget_s, gpu=False, history=history
        )
        return search, reported(search, tmp_path)

    left_out = 0
    for budget_s in range(3 * int(process_s), 12 * int(process_s), int(process_s)):
        history = History(tmp_path / f"{budget_s}.sqlite", print)
        search, report = said(float(budget_s), history)
        if search.stop.reason != "done" or search.decisions["batch_size"].outcome != "skipped":
            continue
        left_out += 1
        assert report.verdict == "partial"
        assert "before batch_size could be tried" in report.reason
        more = re.search(r"--budget (\d+)m", report.reason)
        assert more is not None
        assert "it goes on from here" in report.reason
        again, _ = said(60.0 * int(more[1]), history)
        assert again.decisions["batch_size"].outcome != "skipped"
    assert left_out


def test_pairs_that_the_budget_ended_amid_are_no_answer(tmp_path: Path) -> None:
    """They took longer than the run that made them worth while."""
    cut = 0
    for budget_s in range(70, 200, 10):
        engine = on_formula(
            load_s=1e-6,
            step_kind="optimizer step",
            process_s=lambda t: 25.0 if t.purpose == "whatif" else 8.0,
        )
        text = "batch_size: 4\nlr: 0.1\n"
        search = formula_search(tmp_path, engine, text, budget_s=float(budget_s), gpu=False)
        pairs = [each.outcome for each in search.standing.proposals if each.outcome]
        if not any(each.cut_short and len(each.counted) < 2 for each in pairs):
            continue
        cut += 1
        report = reported(search, tmp_path)
        assert report.verdict == "partial"
        assert "the budget ended amid its pairs of runs" in report.reason
        assert "Call again with --budget" in report.reason
    assert cut


def test_what_pairs_did_not_prove_is_told_with_what_they_said(tmp_path: Path) -> None:
    """Noise made one run fast; that nothing is faster was not shown by that."""
    engine = Lucky(Formula(load_s=1e-6, launch_s=1e-6, process_s=1.0, step_kind="optimizer step"))
    search = formula_search(tmp_path, engine, "batch_size: 4\nnum_workers: 0\nlr: 0.1\n")
    report = reported(search, tmp_path)
    assert report.verdict == "unchanged"
    assert "Nothing" not in report.reason
    assert re.search(
        r"batch_size: 4 to \d+ looked 1.\d\dx better at first; \d+ pairs of runs said 1.00x",
        report.reason,
    )
    assert report.reason.endswith("no gain was proven.")


class Lucky(RecordedEngine):
    """The search's run of each larger batch is half as fast again as all later ones."""

    def run(self, trial: Trial) -> Run | Failure:
        result = super().run(trial)
        if isinstance(result, Run) and trial.purpose == "search" and trial.candidate.changes:
            return replace(result, units_per_s=1.5 * result.units_per_s)
        return result


def test_a_busy_machine_is_in_the_first_lines(tmp_path: Path) -> None:
    """With who it was, and that disturbed rounds had to be counted."""
    report = report_of(tmp_path, on_formula(load_s=1e-6, slowed=1.0, held=lambda *_: 1.0))
    assert "others held 1.0 of 8 CPUs (stress up to 1.0)" in report.busy
    assert "Disturbed rounds had to be counted" in report.busy
    assert report.busy in "\n".join(rendering.render(report).splitlines()[:6])
    assert any(r.disturbed and r.counted for found in report.comparisons for r in found.rounds)


def test_a_gain_beside_others_is_told_so_wherever_it_is_told() -> None:
    """What is advised rests on rounds as what is written does."""
    gain = Interval(estimate=3.1, low=1.9, high=5.1, n=2)
    advice = Advice(kind="switch", title="threads=1", gain=gain, stood_in=True)
    assert surroundings.BESIDE_OTHERS in advised.advised(advice)
    quiet = replace(advice, stood_in=False)
    assert surroundings.BESIDE_OTHERS not in advised.advised(quiet)


def test_advice_from_a_busy_machine_is_told_so(tmp_path: Path) -> None:
    """In its own sentence, and in the first lines where nothing was written."""
    busy = on_formula(
        load_s=0.01, unit_s=1e-4, items=64, step_kind="optimizer step",
        slowed=1.0, held=lambda *_: 1.0,
    )  # fmt: skip
    report = reported(formula_search(tmp_path, busy, "lr: 0.1\n"), tmp_path)
    assert not report.changes
    assert report.advice
    assert all(surroundings.BESIDE_OTHERS in each.detail for each in report.advice)
    assert surroundings.BESIDE_OTHERS in report.busy


def test_who_held_next_to_nothing_is_not_named() -> None:
    """What a name is told with is the most that it held, which may be more than the mean."""
    who = [Neighbour(name="cc1plus", cpus=0.84), Neighbour(name="kworker", cpus=0.03)]
    run = a_run(disturbance=Disturbance(disturbed=True, others_cpus=0.4))
    said = surroundings.busy([run], who, 2, stood_in=False)
    assert said.endswith("others held 0.4 of 2 CPUs (cc1plus up to 0.8).")


@pytest.mark.parametrize(
    ("others_cpus", "told"),
    [
        (0.2, "Measured on a busy machine: others held 0.2 of 2 CPUs."),
        (0.1, "Measured beside others, who held 0.1 of 2 CPUs."),
        (0.01, "Measured beside others, who held less than 0.1 of 2 CPUs."),
    ],
)
def test_a_machine_is_busy_from_a_tenth_of_its_cpus_on(others_cpus: float, told: str) -> None:
    """Who held a twentieth disturbed runs, and is no reason to doubt them all."""
    run = a_run(disturbance=Disturbance(disturbed=True, others_cpus=others_cpus))
    assert surroundings.busy([run], [], 2, stood_in=False) == told


def test_nothing_is_told_of_where_the_time_goes_from_one_run(tmp_path: Path) -> None:
    """A budget that bought a single baseline has no bottleneck to name."""
    engine = on_formula(load_s=1e-6, process_s=25.0)
    search = formula_search(tmp_path, engine, TEXT, workload=TEST, budget_s=165.0)
    assert len(search.standing.originals) == 1
    report = reported(search, tmp_path)
    proofs = [run for proof in search.standing.proofs for run in proof.runs("before")]
    assert (report.bottleneck_before is None) is (len(proofs) == 0)


def test_a_knob_found_by_experiment_is_told_with_what_showed_it(tmp_path: Path) -> None:
    """No name speaks for it, so the report says what was moved and what was seen."""
    engine = on_formula(names={"batch_size": "zorp", "num_workers": "vex"}, load_s=1e-6)
    search = formula_search(tmp_path, engine, "plum: {zorp: 6, vex: 2}\n", workload=TEST)
    report = reported(search, tmp_path)
    told = "`plum.zorp` is the batch size: with 12 in place of 6, its batches held 12, not 6."
    assert f"Found by experiment: {told}" in report.notes
    assert {change.path for change in report.changes} >= {"plum.zorp"}
    assert told in rendering.render(report)


@pytest.mark.parametrize("process_s", [1.0, 4.0, 9.0])
@pytest.mark.parametrize("engine", [{"load_s": 1e-6}, FLAT, {"load_s": 1e-6, "noise": 0.3}])
def test_what_is_partial_names_the_budget_that_would_do(
    tmp_path: Path, process_s: float, engine: dict[str, Any]
) -> None:
    """Wherever the budget ended it."""
    for budget_s in range(20, 200, 24):
        on = on_formula(**engine, process_s=process_s)
        report = report_of(tmp_path, on, budget_s=float(budget_s))
        if report.verdict == "partial":
            assert re.search(r"--budget \d", report.reason), report.reason


@pytest.mark.parametrize(
    ("kind", "left"),
    [("overlay", ()), ("landlock", ("a.png", "b.log")), ("guard", ("a.png", "b.log"))],
)
def test_only_what_is_still_there_is_told_as_written(kind: str, left: tuple[str, ...]) -> None:
    """What was thrown away with its trial nobody finds."""
    request = TrialRequest(variant=Variant(), purpose="search", plan=MeasurePlan())
    results = (
        a_run(isolation=kind, files_created=("b.log", "a.png")),
        Failure(
            trial_id="1", purpose="search", label="original", candidate_key="k", kind="hang",
            evidence="e", next_step="n", isolation=kind, files_created=("a.png",),
        ),
    )  # fmt: skip
    attempts = [
        TrialResult(id="1", request=request, result=each, remaining_s=1.0) for each in results
    ]
    assert surroundings.left_behind(attempts) == list(left)


def test_what_a_fit_chose_is_told_so() -> None:
    """Beside the single runs, of which another may have been faster."""
    for reason in ("changed-batch", "changed-loader"):
        assert "by the curve fitted to all runs" in sentences.REASONS[reason]


def test_what_was_tried_in_vain_is_told_alike_wherever_it_was_set(tmp_path: Path) -> None:
    """A training batch is tried through the config, and nothing from inside."""
    said = set()
    for seed in range(8):
        engine = on_formula(load_s=1e-6, step_kind="optimizer step", noise=0.4, seed=seed)
        report = reported(formula_search(tmp_path, engine, "batch_size: 4\n"), tmp_path)
        said |= {each.partition(": ")[0] for each in report.notes if "batch_size: 4 to" in each}
    assert said == {"Tried, and not proven to gain"}


def test_why_there_is_no_gpu_is_told_once(tmp_path: Path) -> None:
    machine = replace(QUIET_MACHINE, gpu_note="No driver is installed.")
    search = formula_search(tmp_path, on_formula(**FLAT), TEXT, workload=TEST, gpu=False)
    text = rendering.render(reported(search, tmp_path, machine))
    assert "this CPU, and says nothing about a GPU." in text
    assert text.count("No driver is installed.") == 1


@pytest.mark.parametrize(
    ("text", "here", "told"),
    [
        ("amp: false", ("float32", "bfloat16"), "worth a try on this target: bfloat16."),
        ("amp: false", ("float32",), "this target has no narrower precision."),
        ("precision: bf16", ("float32", "bfloat16"), "this target has no narrower precision."),
    ],
)
def test_no_precision_is_worth_a_try_that_is_there_already_or_wider(
    tmp_path: Path, text: str, here: tuple[str, ...], told: str
) -> None:
    search = formula_search(tmp_path, on_formula(**FLAT), f"{text}\n", precisions=here)
    (found,) = reported(search, tmp_path).decisions
    assert found.why.endswith(told)


def test_only_code_stands_as_code() -> None:
    """What a switch asks for around a line of code is prose."""
    for switch in SWITCHES:
        lines = re.findall("`([^`]+)`", switch.code.format(value="x"))
        assert lines, switch.name
        for line in lines:
            compile(f"{line} pass" if line.endswith(":") else line, switch.name, "exec")
        prose = re.sub("`[^`]+`", "", switch.code)
        assert not re.search(r"[()_=]", prose), switch.name
