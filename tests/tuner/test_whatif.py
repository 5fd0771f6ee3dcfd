"""Changes that no config holds: which are tried, which become advice, and which never do."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from advisor.history import History
from advisor.model import Advice, Failure, Run, Shares, Trial
from advisor.patches import proven_advice
from advisor.tuner.value_trials import batch_share
from tests.report.composing import reported
from tests.support.simulator.engine import RecordedEngine, Values
from tests.support.simulator.search import FormulaSearch, formula_search, on_formula
from tests.tuner.configs import INFERENCE, TEST

CODED = {"batch_size": 4, "num_workers": 0}
CONFIG = "lr: 0.1\n"
LOADER = "l = DataLoader(\n    data,\n    batch_size=4,\n)\n"
ON_CUDA = {"device": "cuda:0", "cudnn_benchmark": False, "channels_last": False, "tf32": False}
GUARD = {"numeric-tolerance": "2%"}
OWN_SAMPLER = {"batch_asked": None}
TESTING = ON_CUDA | {"loader_site": "train.py:1"}
TRAINING = TESTING | {"trains": "optimizer"}


def advice_of(search: FormulaSearch) -> tuple[Advice, ...]:
    """What was proven and is not ours to write."""
    return proven_advice(search.state, search.executor.program)


def tried(engine: RecordedEngine) -> list[str]:
    """Overrides that cost a process, in order, without their site."""
    asked = dict.fromkeys(spelled(each.trial) for each in engine.asked)
    return list(filter(None, asked))


def spelled(trial: Trial) -> str:
    """Overrides of one process: `num_workers=4,prefetch_factor=4`, `compile`."""
    return ",".join(
        each.knob if each.value is True else f"{each.knob}={each.value}"
        for each in trial.plan.overrides
    )


def computing(*kind: type[RecordedEngine], **more: Any) -> RecordedEngine:
    """Training on a GPU that hardly waits for data."""
    observed = {**ON_CUDA, **OWN_SAMPLER, **more.pop("observed", {})}
    return on_formula(
        *kind, coded=CODED, load_s=1e-6, observed=observed, step_kind="optimizer step", **more
    )


def loader_bound(**more: Any) -> RecordedEngine:
    """Waits most of the time for a loader that the code builds without workers."""
    observed = {"loader_site": "train.py:1", **OWN_SAMPLER, **more.pop("observed", {})}
    return on_formula(coded=CODED, observed=observed, step_kind="optimizer step", **more)


def test_workers_that_stand_in_the_code_become_advice_with_a_patch(tmp_path) -> None:
    """Measured in pairs of this call, at the line where the loader is built."""
    (tmp_path / "train.py").write_text(LOADER)
    history = History(tmp_path / "history.sqlite")
    for _ in range(2):
        search = formula_search(tmp_path, loader_bound(), CONFIG, history=history)
    paired = [each for each in search.asked("whatif") if each.request.series]
    assert {each.reused for each in paired} == {False}
    (advice,) = advice_of(search)
    assert advice.title == "DataLoader arguments: num_workers=4"
    assert advice.site == "train.py:1"
    assert advice.gain.n >= 6
    assert advice.gain.low == pytest.approx(22 / 6, rel=0.01)
    assert "num_workers=4" in advice.patch, "the smallest count that is as fast"
    assert search.decisions_in_code["num_workers"].outcome == "advised"
    assert (tmp_path / "train.py").read_text() == LOADER


class SlowOnce(RecordedEngine):
    """The machine has a slow moment at twice the batch."""

    def run(self, trial: Trial, *args: Any, **more: Any) -> Run | Failure:
        result = super().run(trial, *args, **more)
        slow = isinstance(result, Run) and spelled(trial) == "batch_size=8"
        return replace(result, units_per_s=result.units_per_s / 4) if slow else result


@pytest.mark.parametrize(("workload", "note"), [({}, True), (TEST, False)])
def test_a_batch_that_stands_in_the_code_becomes_advice(workload, note, tmp_path) -> None:
    """Of a training too, whose learning rate has to follow. One slow run ends no climb."""
    (tmp_path / "train.py").write_text(LOADER)
    seen = {"loader_site": "train.py:1", "trains": "optimizer" if note else None}
    engine = on_formula(SlowOnce, coded=CODED, load_s=1e-6, observed=seen)
    (advice,) = advice_of(formula_search(tmp_path, engine, CONFIG, workload=workload))
    assert advice.title == "DataLoader arguments: batch_size=2048"
    assert "+    batch_size=2048," in advice.patch
    assert ("The learning rate" in advice.detail) is note


def test_a_knob_that_the_code_overrides_is_tried_in_the_code(tmp_path) -> None:
    """The config says workers and the program ignores it: the call is what must change."""
    engine = loader_bound(ignored=frozenset({"num_workers"}))
    search = formula_search(tmp_path, engine, "num_workers: 0\n")
    assert [decision.outcome for decision in search.decisions.values()] == ["ignored"]
    assert len(advice_of(search)) == 1


@pytest.mark.parametrize(
    ("observed", "load_s", "workload", "order"),
    [
        (TRAINING, 1e-6, GUARD, ["cudnn_benchmark", "channels_last", "autocast", "batch_size"]),
        (TRAINING, 0.004, GUARD, ["num_workers", "cudnn_benchmark", "autocast"]),
        (TRAINING, 1e-6, {"accept": ["update-samples"]}, ["batch_size", "channels_last"]),
        (TESTING, 1e-6, TEST, ["batch_size", "cudnn_benchmark", "channels_last"]),
        (TESTING, 0.02, TEST, ["num_workers", "batch_size", "cudnn_benchmark"]),
    ],
)
def test_what_changes_a_training_is_tried_behind_what_is_free(
    observed, load_s, workload, order, tmp_path
) -> None:
    """Loader, switches, precision inside its tolerance, then the batch, unless that is free too."""
    gains = {"cudnn_benchmark": 1.3, "channels_last": 1.2, "autocast=bfloat16": 1.5}
    engine = on_formula(coded=CODED, load_s=load_s, observed=observed, switches=gains)
    formula_search(tmp_path, engine, CONFIG, workload=workload)
    stacks = tried(engine)
    first = [next(n for n, stack in enumerate(stacks) if knob in stack) for knob in order]
    assert first == sorted(first), stacks


@pytest.mark.parametrize("seed", range(4))
def test_a_small_gain_in_much_noise_does_not_spend_what_a_large_one_needs(seed, tmp_path) -> None:
    """Each change runs once before the first is compared, compilation too."""
    off, gains = {"compiled": False}, {"cudnn_benchmark": 1.12, "channels_last": 1.1, "compile": 2}
    engine = computing(switches=gains, observed=off, noise=0.06, seed=seed, process_s=10.0)
    search = formula_search(tmp_path, engine, CONFIG, budget_s=360.0)
    (advice,) = advice_of(search)
    assert "compile" in advice.title.split("; ")


def test_what_is_on_already_is_never_tried(tmp_path) -> None:
    """The probe saw it."""
    on = {
        "cudnn_benchmark": True,
        "channels_last": True,
        "tf32": True,
        "compiled": True,
        "pin_memory": False,
        "dtype": "bfloat16",
    }
    engine = computing(observed=on, switches=dict.fromkeys(on, 2.0), copies=0.1)
    formula_search(tmp_path, engine, CONFIG, workload=GUARD)
    assert tried(engine) == ["pin_memory"]


def test_threads_are_tried_on_a_cpu_and_advised_with_a_patch(tmp_path) -> None:
    """A free setting of the environment: what the workers leave, every CPU, half, one; at most
    two processes, and the fastest alone is proposed."""
    (tmp_path / "train.py").write_text("import torch\n\nmodel(batch)\n")
    cpu = {"device": "cpu", "threads": 8, "model_site": "train.py:3"}
    engine = computing(observed=cpu, switches={"threads=4": 1.3, "threads=2": 1.5})
    search = formula_search(tmp_path, engine, CONFIG, cpus=4)
    assert tried(engine)[:2] == ["threads=4", "threads=2"]
    (advice,) = advice_of(search)
    assert advice.title == "threads=2"
    assert "+torch.set_num_threads(2)" in (advice.patch or "")
    assert "`torch.set_num_threads(2)`, or `OMP_NUM_THREADS=2` before" in advice.detail


@pytest.mark.parametrize(
    ("observed", "workers", "expected"),
    [
        ({"device": "cpu", "threads": 8}, 6, ["threads=2", "threads=4"]),
        ({"device": "cpu", "threads": 1, "world_size": 8}, 0, []),
        ({"device": "cpu", "threads": None}, 0, []),
        ({"device": "cuda:0", "threads": 8}, 0, ["threads=4", "threads=1"]),
        ({"device": "cuda:0", "threads": 8}, 8, ["threads=1", "threads=4"]),
    ],
)
def test_threads_are_tried_where_they_can_matter(observed, workers, expected, tmp_path) -> None:
    """By what workers and ranks leave, beside a GPU as on a CPU."""
    text = f"num_workers: {workers}\nlr: 0.1\n"
    on = {"cudnn_benchmark": True, "channels_last": True, "pin_memory": False, "compiled": True}
    engine = computing(observed={**on, **observed, "workers": workers})
    formula_search(tmp_path, engine, text, cpus=8)
    asked = [each for each in tried(engine) if each.startswith("threads")]
    assert asked == expected


@pytest.mark.parametrize(
    ("workload", "drift", "expected"),
    [(None, 0.0, None), (GUARD, 0.001, ["autocast=bfloat16"]), (GUARD, 0.5, [])],
)
def test_rounding_is_only_changed_behind_the_guard(workload, drift, expected, tmp_path) -> None:
    """Not tried without a declared tolerance; beyond it not advised, however fast."""
    engine = computing(
        observed={"device": "cpu"},
        switches={"autocast=bfloat16": 1.5},
        drifts={"autocast=bfloat16": drift},
    )
    search = formula_search(tmp_path, engine, CONFIG, workload=workload)
    assert tried(engine) == ([] if expected is None else ["autocast=bfloat16"])
    assert [advice.title for advice in advice_of(search)] == (expected or [])
    refused = [f"{each.what} {each.gain:.2f}x" for each in search.state.left_out]
    assert refused == ["autocast bfloat16 in the code 1.50x"] * (expected == [])
    assert {each.cause for each in search.state.left_out} <= {"outside-tolerance"}
    if expected:
        search = formula_search(tmp_path, engine, CONFIG, workload=GUARD, budget_s=20)
        assert "1.50x in one run: drift 0.1" in reported(search, tmp_path).next_actions[0]


def test_a_spent_budget_is_said(tmp_path) -> None:
    """None begins where its rounds would not fit; nothing written depends on it."""
    engine = computing(switches={"compile": 2.0}, observed={"compiled": False}, process_s=10.0)
    search = formula_search(tmp_path, engine, CONFIG, budget_s=75.0)
    assert advice_of(search) == ()
    whats = [skipped.task.text for skipped in search.state.skipped]
    assert "compile true in the code" in whats
    assert all(what.endswith(" in the code") for what in whats)
    assert search.state.suggestions == ()
    assert not any(skipped.matters for skipped in search.state.skipped)


FLAGS = "cudnn_benchmark: false\nchannels_last: false\n"


@pytest.mark.parametrize(("text", "on"), [(FLAGS, True), (FLAGS.replace("false", "0"), 1)])
def test_a_flag_of_the_config_is_tuned_behind_the_guard(tmp_path, text, on) -> None:
    """The config holds it, so the config is where it is switched on, proven and written."""
    engine = computing(flags={"cudnn_benchmark": 1.4, "channels_last": 1.0})
    search = formula_search(tmp_path, engine, text, workload=GUARD)
    (change,) = search.winner.changes
    assert change.path == "cudnn_benchmark"
    assert repr(change.new) == repr(on)
    assert search.decisions["channels_last"].reason.startswith("No value tested was faster")
    assert not {"cudnn_benchmark", "channels_last"} & {*tried(engine)}


@pytest.mark.parametrize("budget_s", range(100, 180, 20))
def test_nothing_is_left_out_that_what_is_left_would_pay(tmp_path, budget_s) -> None:
    """What several proposals need together never keeps the first of them from its rounds."""
    switches = {"channels_last": 1.3, "cudnn_benchmark": 1.25, "tf32": 1.2}
    engine = computing(process_s=10.0, noise=0.05, seed=budget_s, switches=switches)
    search = formula_search(tmp_path, engine, CONFIG, budget_s=budget_s)
    for skipped in search.state.skipped:
        assert skipped.needed_s > skipped.remaining_s, skipped


@pytest.mark.parametrize(
    ("followed", "outcome"), [({"bf16"}, "changed"), ({"fp16"}, "changed"), (set(), "ignored")]
)
def test_a_precision_is_ignored_only_if_every_value_is(tmp_path, followed, outcome) -> None:
    """The program may know one half precision only; bfloat16 is asked for first."""

    class Knows(RecordedEngine):
        def run(self, trial: Trial) -> Run | Failure:
            run = super().run(trial)
            asked = {str(c.new) for c in trial.candidate.changes if c.kind == "precision"}
            rate = 100.0 * (1.5 if asked & followed else 1.0)
            seen = replace(run.effects, dtype="float16" if asked & followed else "float32")  # type: ignore[arg-type, type-var]
            return replace(run, units_per_s=rate, effects=seen)  # type: ignore[arg-type, type-var]

    engine = on_formula(Knows, load_s=1e-6, bf16_speedup=1.0)
    search = formula_search(
        tmp_path,
        engine,
        "precision: fp32\n",
        workload=GUARD,
        precisions=("float32", "float16", "bfloat16"),
    )
    asked = [c.new for a in search.asked("search") for c in a.request.variant.candidate.changes]
    assert asked[0] == "bf16"
    assert search.decisions["precision"].outcome == outcome


class Compiles(RecordedEngine):
    """Compilation takes `cost_s`, and `launch` of the time goes to launches."""

    cost_s, launch = 20.0, 0.5

    def run(self, trial: Trial) -> Run | Failure:
        run = super().run(trial)
        if not isinstance(run, Run):
            return run
        run = replace(run, shares=Shares(launch=self.launch, compute=0.9))
        if any(each.knob == "compile" for each in run.overrides):
            *others, outcome = sorted(run.overrides, key=lambda each: each.knob == "compile")
            run = replace(run, overrides=(*others, replace(outcome, cost_s=self.cost_s)))
        return run


class ComputeBound(Compiles):
    launch = 0.0


@pytest.mark.parametrize(
    ("kind", "first"), [(Compiles, "compile=reduce-overhead"), (ComputeBound, "cudnn_benchmark")]
)
def test_cuda_graphs_come_first_where_launches_dominate(tmp_path, kind, first) -> None:
    """Elsewhere compilation comes last, because it costs most."""
    switches = {"compile": 1.6, "compile=reduce-overhead": 2.0, "cudnn_benchmark": 1.1}
    engine = computing(kind, observed={"compiled": False}, switches=switches)
    search = formula_search(tmp_path, engine, CONFIG)
    assert tried(engine)[0] == first
    (advice,) = advice_of(search)
    assert {"compile", "compile=reduce-overhead"} & {*advice.title.split("; ")}


@pytest.mark.parametrize(
    ("device", "items", "seen"),
    [
        ("cuda:0", None, "a validation pass or a longer batch may need more"),
        ("cuda:0", 1000, "One pass over the data, in which no validation was seen"),
        ("cuda:0", 10**14, "a validation pass or a longer batch may need more"),
        ("cpu", 1000, None),
    ],
)
def test_a_proven_batch_runs_one_pass_on_a_card(tmp_path, device, items, seen) -> None:
    """A pass that is unknown or too long for the budget leaves a caveat."""
    observed = {"device": device, "data_items": items}
    engine = on_formula(load_s=1e-6, observed=observed)
    search = formula_search(tmp_path, engine, INFERENCE, workload=TEST, memory_gib=80.0)
    assert search.decisions["batch_size"].outcome == "changed"
    reason = search.decisions["batch_size"].reason
    assert (seen or "") in reason
    assert ("may need more" in reason or "One pass" in reason) is (seen is not None)


def test_a_batch_that_fails_within_a_pass_is_not_written(tmp_path) -> None:
    """Its measured steps fitted; the validation or a longer batch did not."""

    def fails(_: Values, trial: Trial) -> str | None:
        return "gpu-oom" if trial.label.startswith("one pass") else None

    engine = on_formula(load_s=1e-6, observed={"device": "cuda:0", "data_items": 1000}, fails=fails)
    search = formula_search(tmp_path, engine, INFERENCE, workload=TEST, memory_gib=80.0)
    assert search.values == {}
    decision = search.decisions["batch_size"]
    assert decision.outcome == "kept"
    assert "fails within one pass over the data. gpu-oom" in decision.reason


def test_a_gain_that_noise_hides_is_likely_with_the_budget_that_would_do(tmp_path) -> None:
    """A true 1.5x, never told as unchanged: proven, or likely with the way to finish it."""
    for seed in range(12):
        engine = on_formula(load_s=1e-6, launch_s=2.5e-4, noise=0.2, seed=seed, process_s=5.0)
        folder = tmp_path / str(seed)
        search = formula_search(folder, engine, "batch_size: 1\n", workload=TEST, budget_s=90.0)
        estimates = [each.interval(search.context.objective) for each in search.state.confirmations]
        if search.winner.changes or not any(e and e.estimate > 1.03 for e in estimates[-1:]):
            continue
        assert search.state.likely
        assert any(
            "confirmation" in each.task.kind and each.matters for each in search.state.skipped
        )


def test_a_switch_under_which_the_batch_was_misread_is_no_gain(tmp_path) -> None:
    """Compiled code may hide the batch behind another dimension. A larger one may be asked for."""
    state = formula_search(tmp_path, on_formula(load_s=1e-6), "lr: 0.1\n").state
    run = state.incumbent_run
    misread = replace(run, effects=replace(run.effects, batch=2.0 * (run.effects.batch or 1.0)))
    assert batch_share(misread) != batch_share(run)
    twice = replace(misread.effects, batch_asked=2 * (run.effects.batch_asked or 1))
    assert batch_share(replace(run, effects=twice)) == batch_share(run)


@pytest.mark.parametrize(("known", "expected"), [(True, True), (None, False)])
def test_batches_out_of_order_are_tried_where_workers_are_waited_for(
    known, expected, tmp_path
) -> None:
    """One slow sample then holds up no other; an older torch knows no such argument."""
    arguments = (("in_order", known),) if known is not None else ()
    observed = {"workers": 2, "loader_arguments": arguments}
    engine = loader_bound(observed=observed)
    formula_search(tmp_path, engine, CONFIG)
    assert any("in_order=False" in each for each in tried(engine)) is expected


def test_a_gain_within_the_tie_is_compared_where_nothing_else_was_proven(tmp_path) -> None:
    """Runs that vary hide it from single runs; the rest of the budget is for the proof."""
    switches = {"cudnn_benchmark": 1.12, "fused": 1.0}
    engine = computing(observed=ON_CUDA, switches=switches, noise=0.06, seed=6)
    search = formula_search(tmp_path, engine, CONFIG, budget_s=300)
    assert search.state.tie_threshold > 0.12, "the noise hides the gain"
    (advice,) = advice_of(search)
    assert advice.title == "cudnn_benchmark"
    assert advice.gain.low > 1.03


def test_a_comparison_that_the_budget_shortened_is_a_next_step(tmp_path) -> None:
    """Faster in too few rounds to prove it; the budget that holds the rest is named."""
    engine = computing(observed=ON_CUDA, switches={"cudnn_benchmark": 1.25}, noise=0.12, seed=3)
    search = formula_search(tmp_path, engine, CONFIG, budget_s=18)
    assert not advice_of(search)
    report = reported(search, tmp_path)
    assert report.next_actions[0].startswith("Prove cudnn_benchmark: 1.")
    assert not any("cudnn" in each for each in (*report.next_actions[1:], *report.notes))


def test_a_gain_that_nothing_will_compare_keeps_no_time_from_the_others(tmp_path) -> None:
    """Within the spread of equal runs it waits for no rounds."""
    engine = computing(observed=ON_CUDA, switches={"channels_last": 1.05}, noise=0.04, seed=3)
    formula_search(tmp_path, engine, CONFIG, workload=GUARD, budget_s=34)
    assert tried(engine) == ["cudnn_benchmark", "channels_last", "tf32", "autocast=bfloat16"]


def test_rounds_that_proved_it_early_leave_no_rest_to_run(tmp_path) -> None:
    """Processes took four times as long from the ninth on."""
    took = itertools.chain([1.0] * 8, itertools.repeat(4.0))
    engine = computing(
        observed=ON_CUDA, switches={"cudnn_benchmark": 1.6}, seed=3, process_s=lambda _: next(took)
    )
    search = formula_search(tmp_path, engine, CONFIG, budget_s=38)
    (suggestion,) = search.state.suggestions
    assert suggestion.outcome.cut_short
    assert advice_of(search)
    assert not any(each.task.rest for each in search.state.skipped)
