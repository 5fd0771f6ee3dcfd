"""From a search that ended to its report: verdict, sides, notes and next actions."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from advisor.__main__ import build_parser
from advisor.executor.comparison import Comparison
from advisor.executor.requests import TrialRequest, Variant
from advisor.knobs.registry import switches
from advisor.machine import target
from advisor.model import (
    PROCESS,
    Candidate,
    Card,
    Disturbance,
    Effects,
    MeasurePlan,
    Neighbour,
    Purpose,
    Run,
    Shares,
    Trial,
)
from advisor.objective import THROUGHPUT, parse_constraint
from advisor.report import bottleneck, build, verdict, view
from advisor.report.schema import CandidateEntry, Gain, Report
from advisor.tuner.outcomes import Task
from tests.executor.made import comparison
from tests.report.composing import reported
from tests.runs import a_change, a_run
from tests.support.simulator.engine import QUIET_MACHINE, RecordedEngine
from tests.support.simulator.search import formula_search, on_formula, taking

TEXT = "batch_size: 1\nnum_workers: 0\n"
TEST = {"phase": "test"}
FLAT = {"load_s": 1e-6, "launch_s": 1e-6, "unit_s": 0.01}
"""A program that no batch makes faster."""


def report_of(folder: Path, engine: RecordedEngine, **more: Any) -> Report:
    """The search on `engine`, reported."""
    return reported(formula_search(folder, engine, TEXT, workload=TEST, **more), folder)


def test_a_proven_gain_is_improved_and_its_table_has_the_same_ratio(tmp_path) -> None:
    report = report_of(tmp_path, on_formula(load_s=1e-6))
    assert report.verdict == "improved"
    assert report.gain == report.gain_free
    assert report.gain.low <= report.gain.ratio / 1.03
    assert report.gain.high >= report.gain.ratio * 1.03
    assert report.load_note == ""
    assert report.after.units_per_s / report.before.units_per_s == pytest.approx(report.gain.ratio)
    assert view.render(report)


def test_a_card_that_the_program_leaves_idle_is_the_first_note() -> None:
    gpu = SimpleNamespace(name="RTX 4060")
    runs = {d: [a_run(effects=Effects(device=d))] for d in ("cpu", "cuda:0", None)}
    found = {device: verdict.unused_gpu(run, [gpu]) for device, run in runs.items()}
    assert found["cpu"].startswith("Your program does not use the RTX 4060: ")
    assert found["cuda:0"] == ""
    assert found[None] == ""
    assert verdict.unused_gpu(runs["cpu"], []) == ""


def test_unchanged_needs_candidates_that_ran_and_lost(tmp_path) -> None:
    lost = report_of(tmp_path, on_formula(**FLAT))
    assert lost.verdict == "unchanged"
    assert any(trial.purpose == "search" for trial in lost.trials)
    small = report_of(tmp_path, on_formula(**FLAT, process_s=100.0), budget_s=240.0)
    assert small.verdict == "partial"
    assert not any(trial.purpose == "search" for trial in small.trials)


def test_improved_with_work_left_ends_as_partial_does(tmp_path) -> None:
    """A script that reads the exit code alone calls again with a larger budget."""
    done = report_of(tmp_path / "done", on_formula(load_s=1e-6))
    assert done.verdict == "improved"
    assert done.work_left is False
    assert done.exit_code == 0
    slow = on_formula(load_s=1e-6, process_s=20.0)
    cut = report_of(tmp_path / "cut", slow, budget_s=200.0)
    assert cut.verdict == "improved"
    assert cut.work_left is True
    assert cut.exit_code == 5


def test_a_batch_that_the_data_cannot_fill_is_the_reason(tmp_path) -> None:
    """Nothing could be tried, and a setting was there all the same."""
    engine = on_formula(observed={"data_items": 6})
    search = formula_search(tmp_path, engine, "batch_size: 4\n", workload=TEST)
    report = reported(search, tmp_path)
    assert report.reason.startswith("batch_size: No usable larger batch")
    assert report.reason.endswith("the dataset has 6 items.")


def test_a_config_that_the_program_ignores_is_told_so_first(tmp_path) -> None:
    """`No value was faster` would let its user look on in a file that nothing reads."""
    used: dict[str, Any] = {"arguments": (("batch_size", 4),)}
    engine = on_formula(ignored=frozenset({"batch_size"}), observed=used, load_s=1e-6)
    search = formula_search(tmp_path, engine, "batch_size: 4\n")
    report = reported(search, tmp_path)
    assert report.reason.startswith("`batch_size`: Ignored by the program")


def test_more_workers_are_no_advice_once_their_best_count_runs(tmp_path) -> None:
    report = report_of(tmp_path, on_formula(load_s=0.05))
    assert "more loader workers" in report.bottleneck_before.sentence
    assert report.bottleneck_after.sentence.endswith("Shorter by faster transforms or storage.")


def test_the_noise_of_equal_runs_stands_beside_the_tie(tmp_path) -> None:
    """`Faster by more than 15 %` alone would say too much of runs that are 1.81x apart."""
    search = formula_search(tmp_path, on_formula(**FLAT), TEXT, workload=TEST)
    unsteady = (
        replace(run, windows=(1.3454 * run.units_per_s, run.units_per_s / 1.3454))
        for run in search.state.originals
    )
    noisy = replace(search.state, originals=tuple(unsteady))
    assert search.state.tie_percent == "3 %"
    assert noisy.tie_percent == "15 % (parts of equal runs were up to 1.81x apart)"
    found = SimpleNamespace(
        state=noisy, lab=search.executor, never_run=[], stop=search.stop, winner=ORIGINAL,
        decisions=(),
    )  # fmt: skip
    assert verdict._nothing_proven(found) == (
        "No value tested was faster by more than 15 % (parts of equal runs were up to 1.81x apart)."
    )


def test_equal_runs_that_differ_wildly_leave_the_call_open(tmp_path) -> None:
    """Nothing was proven there: not even that no value is twice as fast."""
    search = formula_search(tmp_path, on_formula(**FLAT), TEXT, workload=TEST)
    unsteady = tuple(
        replace(run, windows=(), units_per_s=rate * run.units_per_s)
        for run, rate in zip(search.state.originals, (1.0, 1.6), strict=False)
    )
    state = replace(search.state, originals=unsteady)
    report = reported(replace(search, stop=replace(search.stop, state=state)), tmp_path)
    assert report.verdict == "partial"
    assert report.too_noisy
    assert "**Too noisy to decide:" in view.render(report)
    assert "parts of equal runs were up to 1.60x apart" in report.reason
    assert report.reason.endswith("on an idle machine.")


@pytest.mark.parametrize(
    ("low", "high", "outlook"),
    [
        (0.94, 1.37, "Not proven: 0.94 to 1.37 is possible"),
        (0.94, None, "Not proven: bounds too wide to tell"),
        (1.01, 1.37, "Likely, not proven"),
    ],
)
def test_a_gain_that_may_be_none_is_not_called_likely(low, high, outlook) -> None:
    gain = Gain(ratio=1.24, low=low, high=high, pairs=4)
    assert CandidateEntry(label="batch 8", ratio=1.24, gain=gain).outlook == outlook


def test_a_gain_of_a_single_run_is_not_called_likely() -> None:
    assert CandidateEntry(label="b", ratio=2.0).outlook == "Faster in one run, not proven"


def test_a_comparison_that_others_left_open_names_them(tmp_path) -> None:
    """Its rounds give no interval, and that is no loss of the candidate."""
    who = (Neighbour(name="make", cpus=1.2),)
    busy = Disturbance(disturbed=True, others_cpus=0.2, who=who)
    quiet = Disturbance(disturbed=False, others_cpus=1.0)
    step = ab_test(at(25.0, 25.0, disturbance=busy), at(40.0, 40.0, disturbance=quiet))
    search = formula_search(tmp_path, on_formula(**FLAT), TEXT, workload=TEST)
    state = replace(search.state, confirmations=(step,))
    report = reported(replace(search, stop=replace(search.stop, state=state)), tmp_path)
    assert report.verdict == "partial"
    assert report.reason.startswith(
        "batch 8 could not be judged: others slowed the original in too many rounds "
        "(make up to 1.2 CPUs)."
    )
    assert verdict.undecided(step, "threads=1").startswith("threads=1 could not be judged: ")


def test_memory_is_that_of_the_rounds(tmp_path) -> None:
    """A baseline with diagnostics held 0.5 GiB, and the same config 0.4 in its rounds."""
    rounds = ab_test(at(1.0, 1.1, peak_mem_gib=0.4), at(2.0, 2.1, peak_mem_gib=0.45))
    found = found_in(tmp_path, *at(1.0, 1.1, peak_mem_gib=0.5), comparisons=(rounds,))
    before, after = build.sides(found)
    assert before.peak_mem_gib == 0.4
    assert after.peak_mem_gib == 0.45
    assert before.figures["memory"] == 0.4


def test_an_unproven_candidate_is_named_with_the_call_that_proves_it(tmp_path) -> None:
    """The budget bought the search and no round of the comparison."""
    engine = on_formula(load_s=1e-6, process_s=taking(3.0, search=9.0))
    report = report_of(tmp_path, engine, budget_s=36.0)
    assert not report.comparisons
    assert report.verdict == "partial"
    assert report.candidate.ratio > 1
    words = shlex.split(report.next_command)
    args = build_parser("optimize").parse_args(words[2:])
    assert args.budget % 60 == 0
    assert args.budget > 36.0
    assert f"- Go on with `{report.next_command}`" in view.render(report)
    assert report.candidate.label in report.reason


def test_a_candidate_that_lost_its_rounds_is_not_called_likely(tmp_path) -> None:
    """It ran nine times as fast once, beside a busy neighbour, and half as fast in its rounds."""

    class Lucky(RecordedEngine):
        def run(self, trial: Trial) -> Any:
            run = super().run(trial)
            factor = {"search": 9.0, "confirm": 0.5}.get(trial.purpose, 1.0)
            changed = trial.candidate.changes
            return replace(run, units_per_s=factor * run.units_per_s) if changed else run

    for budget_s in range(30, 120, 10):
        engine = on_formula(Lucky, **FLAT, process_s=6.0)
        report = report_of(tmp_path / str(budget_s), engine, budget_s=float(budget_s))
        lost = {each.after for each in report.comparisons if each.gain and each.gain.ratio < 1}
        assert report.candidate is None or report.candidate.label not in lost


def test_a_setting_that_the_program_ignores_is_no_best_candidate(tmp_path) -> None:
    """It ran as the original did, three times as fast by chance."""

    class Lucky(RecordedEngine):
        def run(self, trial: Trial) -> Any:
            run = super().run(trial)
            searched = trial.purpose == "search"
            return replace(run, units_per_s=3.0 * run.units_per_s) if searched else run

    engine = on_formula(Lucky, **FLAT, ignored=frozenset({"batch_size"}), process_s=6.0)
    search = formula_search(tmp_path, engine, "batch_size: 4\n", budget_s=60.0)
    report = reported(search, tmp_path)
    ignored = next(each for each in report.decisions if each.path == "batch_size")
    assert ignored.outcome == "ignored"
    assert ignored.trials
    assert report.candidate is None
    assert "The best candidate" not in report.reason
    assert "was faster (" not in report.reason


@pytest.mark.parametrize("process_s", [1.0, 9.0])
@pytest.mark.parametrize("engine", [{"load_s": 1e-6}, FLAT, {"load_s": 1e-6, "noise": 0.3}])
def test_a_partial_report_names_the_budget_that_would_do(tmp_path, process_s, engine) -> None:
    for budget_s in range(20, 200, 48):
        on = on_formula(**engine, process_s=process_s)
        report = report_of(tmp_path, on, budget_s=float(budget_s))
        if report.verdict == "partial":
            assert re.search(r"--budget \d", report.reason), report.reason


ORIGINAL = Candidate()
TUNED = Candidate(changes=(a_change(),))


def ab_test(
    before: list[Run],
    after: list[Run],
    arms: tuple[Candidate, Candidate] = (ORIGINAL, TUNED),
    purpose: Purpose = "confirm",
    outside: Sequence[Run] = (),
) -> Comparison:
    """Rounds of these runs."""
    plan = MeasurePlan()
    requests = tuple(
        TrialRequest(variant=Variant(candidate=arm), purpose=purpose, plan=plan) for arm in arms
    )
    return comparison(before, after, requests=requests, purpose=purpose, outside=outside)


def at(*rates: float, **given: Any) -> list[Run]:
    return [a_run(units_per_s=rate, **given) for rate in rates]


def found_in(tmp_path: Path, *originals: Run, comparisons: tuple[Comparison, ...]) -> Any:
    """An ended search with these runs."""
    search = formula_search(tmp_path, on_formula(**FLAT), TEXT, workload=TEST)
    state = replace(search.state, originals=originals, confirmations=comparisons)
    lab = SimpleNamespace(comparisons=comparisons)
    return SimpleNamespace(state=state, chain=comparisons, lab=lab, unit="sample", winner=TUNED)


def test_a_baseline_that_disagrees_widens_the_interval_and_is_told(tmp_path) -> None:
    """Alone it ran at 2.5, inside the comparison at 1.5, and after it at 5.4."""

    def beside(*baselines: float) -> Any:
        rounds = at(1.4, 1.5, 1.6, 1.5, 1.4, 1.6), at(5.3, 5.4, 5.5, 5.3, 5.4, 5.5)
        compared = ab_test(*rounds, outside=at(*baselines))
        return found_in(tmp_path, *at(*baselines), comparisons=(compared,))

    found, agrees = beside(2.5, 2.52), beside(1.5, 1.52)
    whole = verdict.whole_gain(found)
    assert whole.low == pytest.approx(5.4 / 2.51, rel=0.01)
    assert "2.51 samples/s before the comparison and at 1.5" in verdict.baseline_note(found)
    assert verdict.baseline_note(agrees) == ""


def test_the_sides_have_the_rates_of_the_comparison_at_its_ratio(tmp_path) -> None:
    compared = ab_test(at(1.0, 1.2, 1.1), at(2.0, 2.6, 2.4))
    found = found_in(tmp_path, *at(9.0), comparisons=(compared,))
    before, after = build.sides(found)
    gain = verdict.whole_gain(found)
    assert after.units_per_s / before.units_per_s == pytest.approx(gain.estimate)
    assert before.units_per_s == pytest.approx(1.1, rel=0.05)


def test_runs_of_a_configuration_are_those_of_baseline_and_comparisons(tmp_path) -> None:
    """Runs of other candidates, changes on top and quality measures are left out."""
    proof = ab_test(at(1.0, 2.0), at(7.0, 8.0))
    coded = a_change(document=PROCESS, path="channels_last", old=False, new=True, in_code=True)
    tried = ab_test(at(9.0), at(70.0), (TUNED, TUNED.with_changes(coded)), "whatif")
    measure = ab_test(at(0.1), at(0.2), purpose="quality")
    found = found_in(tmp_path, *at(3.0), comparisons=(proof, tried, measure))
    assert [run.units_per_s for run in build.runs_of(found, TUNED)] == [7.0, 8.0, 9.0]
    assert [run.units_per_s for run in build.runs_of(found, ORIGINAL)] == [3.0, 1.0, 2.0]
    busy = Disturbance(disturbed=True, others_cpus=1.0)
    found = found_in(tmp_path, *at(1.0, 2.0, disturbance=busy), *at(4.0, 5.0), comparisons=())
    assert [run.units_per_s for run in build.runs_of(found, ORIGINAL)] == [4.0, 5.0]


@pytest.mark.parametrize(("others_cpus", "shown"), [(None, None), (0.2, "0.20")])
def test_background_load_is_named_with_the_busiest(others_cpus, shown) -> None:
    who = [Neighbour(name="cc1plus", cpus=0.84), Neighbour(name="kworker", cpus=0.03)]
    run = a_run(disturbance=Disturbance(disturbed=True, others_cpus=others_cpus))
    note = verdict.load_note([run], who, 2)
    if shown is None:
        assert note == "Background load could not be read on this machine."
    else:
        held = f"others held {shown} of 2 CPUs (cc1plus up to 0.8)"
        assert note == f"Measured under background load: {held}."


def test_a_card_that_slows_down_or_is_shared_is_no_background_load() -> None:
    """A reader must know what to mend: the cooling, the other process, or the other programs."""
    hot = (("software thermal slowdown", 0.8),)
    seen = Disturbance(disturbed=True, others_cpus=0.0, clocks_held=hot, foreign_gpu_pids=2)
    assert verdict.load_note([a_run(disturbance=seen)], [], 8) == (
        "The GPU slowed down by itself: software thermal slowdown. "
        "2 other processes computed on the GPU meanwhile."
    )


@pytest.mark.parametrize(("cause", "words"), [("no-room", "about"), ("time-limit", "more than")])
def test_what_the_budget_left_out_has_its_cause(tmp_path, cause, words) -> None:
    """In report.json, for scripts: what began and met the limit of a run takes longer than told."""
    search = formula_search(tmp_path, on_formula(**FLAT), TEXT, workload=TEST)
    state = search.state.skip(Task("trial", "batch 64"), 60, cause=cause)
    report = reported(replace(search, stop=replace(search.stop, state=state)), tmp_path)
    assert [each.cause for each in report.skipped] == [cause]
    assert report.next_actions == [f"Measure batch 64, which takes {words} 1 min"]


def test_what_ran_faster_outside_of_a_bound_is_left_out_with_its_cause(tmp_path) -> None:
    """As is what a search could not take for another reason: tests of that reason say which."""
    bound = parse_constraint("memory<=1.5GiB")
    engine = on_formula(load_s=1e-6, base_gib=1.0, unit_gib=0.4)
    report = report_of(tmp_path, engine, objective=replace(THROUGHPUT, constraints=(bound,)))
    assert {each.cause for each in report.left_out} == {"outside-bound"}, report
    (first, *_) = report.left_out
    assert first.ratio > 1
    assert first.reason.startswith(f"{first.label}, ")
    assert "was outside of" in first.reason


def test_a_batch_that_is_only_suggested_is_no_candidate_of_the_headline(tmp_path) -> None:
    """Of a training; cut short by the budget, its comparison leaves the verdict open."""
    engine = on_formula(load_s=1e-6, noise=0.1, step_kind="optimizer step")
    search = formula_search(tmp_path, engine, "batch_size: 4\nlr: 0.1\n")
    found = reported(search, tmp_path)
    assert found.reason.startswith("No value that may be written was faster by more than")
    assert "Faster, and yours to apply: batch_size: 4 to " in view.render(found)
    (suggestion,) = search.state.suggestions
    for rounds, verdict_then in ((2, "partial"), (None, "unchanged")):
        whole = suggestion.outcome
        short = replace(whole, cut_short=True, rounds=whole.rounds[:rounds])
        state = replace(search.state, suggestions=(replace(suggestion, outcome=short),))
        found = reported(replace(search, stop=replace(search.stop, state=state)), tmp_path)
        assert found.verdict == verdict_then, "what its rounds prove is proven"
        likely = f"The best candidate, {suggestion.title}, " in found.reason
        assert likely is (verdict_then == "partial")
    once = replace(suggestion, outcome=None)
    state = replace(state, suggestions=(once,)).skip(Task("comparison", once.title), 60)
    found = reported(replace(search, stop=replace(search.stop, state=state)), tmp_path)
    assert len(found.next_actions) == 1, "its proof is one step"
    assert [(each.task, each.about) for each in found.skipped] == [("comparison", once.title)]
    longer = state.skip(Task("trial", f"another {once.title}"), 60)
    found = reported(replace(search, stop=replace(search.stop, state=longer)), tmp_path)
    assert len(found.next_actions) == 2, "one that ends in the same words is another one"


def test_a_knob_found_by_experiment_is_told_with_its_effect(tmp_path) -> None:
    engine = on_formula(names={"batch_size": "zorp", "num_workers": "vex"}, load_s=1e-6)
    search = formula_search(tmp_path, engine, "plum: {zorp: 6, vex: 2}\n", workload=TEST)
    report = reported(search, tmp_path)
    found = (
        "`plum.zorp` (samples of one batch). With 12 in place of 6 the program showed 12, not 6."
    )
    assert f"Found by experiment: {found}" in report.notes
    assert {change.path for change in report.changes} >= {"plum.zorp"}


@pytest.mark.parametrize("kind", ["overlay", "landlock"])
def test_files_that_a_trial_left_or_changed_are_named(tmp_path, kind) -> None:
    """Those of an overlay went with their trial; a file of an earlier trial is none of theirs."""
    search = formula_search(tmp_path, on_formula(**FLAT), TEXT, workload=TEST)
    attempts = search.executor.attempts
    run = attempts[0].run
    created, changed = ("b.log", "a.png"), ("a.png", "best.ckpt")
    run = replace(run, isolation=kind, files_created=created, files_changed=changed)
    attempts[0] = replace(attempts[0], result=run)
    report = reported(search, tmp_path)
    sentence = "The command altered or removed files of yours: `best.ckpt`."
    outside = "The command wrote outside the trials' scratch folders: `a.png`, `b.log`."
    for note in (sentence, outside):
        assert (note in report.notes) is (kind == "landlock")


@pytest.mark.parametrize("kind", ["overlay", "landlock", "guard"])
def test_the_report_names_the_kind_that_held(tmp_path, kind) -> None:
    search = formula_search(tmp_path, on_formula(**FLAT), TEXT, workload=TEST)
    attempts = search.executor.attempts
    attempts[0] = replace(attempts[0], result=replace(attempts[0].run, isolation=kind))
    report = reported(search, tmp_path)
    assert report.isolation == build.ISOLATION[kind]
    assert report.isolation in view.render(report)


def test_a_machine_without_a_gpu_is_said_once(tmp_path) -> None:
    machine = replace(QUIET_MACHINE, gpu_note="No driver is installed.")
    search = formula_search(tmp_path, on_formula(**FLAT), TEXT, workload=TEST, gpu=False)
    text = view.render(reported(search, tmp_path, machine))
    assert "It says nothing about a GPU." in text
    assert text.count("No driver is installed.") == 1


def test_only_code_stands_as_code() -> None:
    for spec in switches():
        shown = spec.switch.shown("x")
        lines = re.findall("`([^`]+)`", shown)
        assert lines, spec.kind
        for line in lines:
            compile(f"{line} pass" if line.endswith(":") else line, spec.kind, "exec")
        assert not re.search(r"[()_=]", re.sub("`[^`]+`", "", shown)), spec.kind


@pytest.mark.parametrize(
    ("device", "told"),
    [("cpu", "measured on this CPU"), ("mps:0", "ran on `mps`"), ("xpu:1", "ran on `xpu`")],
)
def test_a_device_that_nothing_here_reads_is_named_and_no_cpu(tmp_path, device, told) -> None:
    """Its kernels run behind the host's back, and this would have been called a CPU's rate."""
    engine = on_formula(load_s=1e-6, observed={"device": device})
    found = reported(formula_search(tmp_path, engine, "batch_size: 4\n", gpu=False), tmp_path)
    (note,) = [note for note in found.notes if "this CPU" in note or "ran on" in note]
    assert told in note


def test_a_card_that_nvml_does_not_show_is_told_with_what_was_not_read(tmp_path) -> None:
    """AMD's is `cuda` to torch: it is no CPU, and no NVML tells its power."""
    engine = on_formula(load_s=1e-6, observed={"device": "cuda:0"})
    card = Card(index=0, name="AMD Instinct MI300X", total_gib=192.0)
    aimed = target.computed_on(target.resolve("auto", QUIET_MACHINE), QUIET_MACHINE, card)
    search = formula_search(tmp_path, engine, "batch_size: 4\n", gpu=True)
    found = reported(search, tmp_path, aimed=aimed)
    (note,) = [note for note in found.notes if "NVML" in note]
    assert "power, energy and clocks were not read" in note
    text = view.render(found)
    assert "Measured on AMD Instinct MI300X; " in text
    assert "this CPU" not in text
    assert "NVML shows no GPU" not in text


@pytest.mark.parametrize(("own", "busy"), [(1.9, True), (1.1, False), (None, False)])
def test_more_workers_are_no_remedy_where_the_program_keeps_all_cpus(own, busy) -> None:
    """They would share them: two workers proved slower where they were advised."""
    runs = [a_run(disturbance=Disturbance(own_cpus=own)) for _ in range(2)]
    assert verdict.are_cpus_busy(runs, 2) is busy
    sentence = bottleneck.diagnose(
        [replace(run, wait_share=0.6, shares=Shares(data_wait=0.6, compute=0.3)) for run in runs],
        more_workers=not busy,
    ).sentence
    assert ("more loader workers" in sentence) is not busy
