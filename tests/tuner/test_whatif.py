"""What no config holds: which what-ifs are tried, what becomes advice, and what never does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.simulator.search import formula_search, on_formula
from tests.tuner.whatifs import (
    CODED,
    CONFIG,
    GUARD,
    LOADER,
    ON_CPU,
    ON_CUDA,
    advice_of,
    computing,
    tried,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.simulator.engine import RecordedEngine


def loader_bound(**more: Any) -> RecordedEngine:
    """Waits most of the time for a loader that the code builds without workers."""
    observed = {"loader_site": "train.py:1", **more.pop("observed", {})}
    return on_formula(coded=CODED, observed=observed, step_kind="optimizer step", **more)


def test_workers_that_stand_in_the_code_become_advice_with_a_patch(tmp_path: Path) -> None:
    """Measured in pairs against the best candidate, at the line where the loader is built."""
    (tmp_path / "train.py").write_text(LOADER)
    (advice,) = advice_of(formula_search(tmp_path, loader_bound(), CONFIG))
    assert advice.title.startswith("DataLoader arguments: num_workers=")
    assert advice.site == "train.py:1 DataLoader(...)"
    assert advice.gain.n >= 6
    assert advice.gain.low == pytest.approx(22 / 6, rel=0.01)
    assert advice.patch is not None
    assert "num_workers=8" in advice.patch
    assert (tmp_path / "train.py").read_text() == LOADER


def test_a_training_batch_that_nothing_makes_up_for_is_only_advised(tmp_path: Path) -> None:
    """Effective batch is the user's; the patch is the config's, and the file is not touched."""
    text = "batch_size: 4\nnum_workers: 0\nlr: 0.1\n"
    search = formula_search(tmp_path, computing(), text)
    assert search.winner.changes == ()
    assert search.decisions["batch_size"].outcome == "advised"
    advice = next(a for a in advice_of(search) if a.title.startswith("batch_size: 4 to "))
    assert advice.gain.low > 1.03
    assert advice.patch is not None
    assert "-batch_size: 4\n+batch_size: " in advice.patch
    assert (tmp_path / "train.yaml").read_text() == text


def test_a_knob_that_the_code_overrides_is_tried_in_the_code(tmp_path: Path) -> None:
    """The config says workers and the program ignores it: the call is what must change."""
    engine = loader_bound(ignored=frozenset({"num_workers"}))
    search = formula_search(tmp_path, engine, "num_workers: 0\n")
    assert [decision.outcome for decision in search.decisions.values()] == ["ignored"]
    assert len(advice_of(search)) == 1


@pytest.mark.parametrize(("noise", "asked"), [(0.0, True), (0.26, False)])
def test_waiting_that_noise_would_hide_gets_no_loader_trials(
    noise: float, asked: bool, tmp_path: Path
) -> None:
    """A twentieth of the time is waited: with none of it the program were 1.05 times as fast."""
    engine = on_formula(coded=CODED, load_s=8e-5, step_kind="optimizer step", observed=ON_CPU)
    search = formula_search(tmp_path, engine, CONFIG, host_noise=noise, gpu=False)
    assert search.state.original.wait_share == pytest.approx(0.05, abs=0.01)
    assert any("num_workers" in each for each in tried(engine)) is asked


@pytest.mark.parametrize(("load_s", "first"), [(1e-6, "batch 8"), (0.02, "num_workers")])
def test_what_promises_most_is_tried_first(load_s: float, first: str, tmp_path: Path) -> None:
    """The loader where it is waited for, then a batch of the training, then switches."""
    engine = on_formula(
        coded={"num_workers": 0},
        load_s=load_s,
        observed=ON_CUDA | {"loader_site": "train.py:1"},
        step_kind="optimizer step",
        switches={"cudnn_benchmark": 1.3, "channels_last": 1.2},
    )
    search = formula_search(tmp_path, engine, "batch_size: 4\nlr: 0.1\n")
    labels = [attempt.request.variant.label for attempt in search.lab.attempts]
    assert first in next(label for label in labels if label != "original")
    switches = [n for n, label in enumerate(labels) if "cudnn" in label]
    assert min(switches) > max(n for n, label in enumerate(labels) if "batch " in label)


@pytest.mark.parametrize("processes", range(8, 14))
def test_a_small_budget_runs_the_batch_of_a_training(processes: int, tmp_path: Path) -> None:
    """Switches that gain little do not spend it first."""
    switches = {"channels_last": 1.05, "cudnn_benchmark": 1.05}
    engine = on_formula(
        load_s=1e-6,
        observed=ON_CUDA,
        step_kind="optimizer step",
        switches=switches,
        process_s=30.0,
        noise=0.1,
    )
    text, budget_s = "batch_size: 4\nlr: 0.1\n", 30.0 * processes
    search = formula_search(tmp_path, engine, text, budget_s=budget_s, host_noise=0.26)
    assert search.stop.reason == "done"
    assert search.decisions["batch_size"].outcome != "skipped"


def test_what_is_on_already_is_never_tried(tmp_path: Path) -> None:
    """The probe saw it."""
    on = {
        "cudnn_benchmark": True,
        "channels_last": True,
        "tf32": True,
        "compiled": True,
        "pin_memory": False,
        "dtype": "bfloat16",
    }
    engine = computing(observed=on, switches=dict.fromkeys(on, 2.0))
    formula_search(tmp_path, engine, CONFIG, workload=GUARD)
    assert tried(engine) == ["loader.pin_memory=1"]


def test_threads_are_tried_on_a_cpu_and_advised_with_a_patch(tmp_path: Path) -> None:
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
    assert "`torch.set_num_threads(2)`, or `OMP_NUM_THREADS=2` before" in advice.reason


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
def test_threads_are_tried_where_they_can_matter(
    observed: dict[str, Any], workers: int, expected: list[str], tmp_path: Path
) -> None:
    """By what workers and ranks leave, beside a GPU as on a CPU."""
    text = f"num_workers: {workers}\nlr: 0.1\n"
    on = {"cudnn_benchmark": True, "channels_last": True, "pin_memory": False, "compiled": True}
    engine = computing(observed={**on, **observed, "workers": workers})
    formula_search(tmp_path, engine, text, cpus=8)
    asked = [whatif for whatif in tried(engine) if whatif.startswith("threads")]
    assert asked == expected


@pytest.mark.parametrize(
    ("workload", "drift", "expected"),
    [(None, 0.0, None), (GUARD, 0.001, ["autocast=bfloat16"]), (GUARD, 0.5, [])],
)
def test_rounding_is_only_changed_behind_the_guard(
    workload: dict[str, Any] | None, drift: float, expected: list[str] | None, tmp_path: Path
) -> None:
    """Not tried without a declared tolerance; beyond it not advised, however fast."""
    engine = computing(
        observed={"device": "cpu"},
        switches={"autocast=bfloat16": 1.5},
        drifts={"autocast=bfloat16": drift},
    )
    search = formula_search(tmp_path, engine, CONFIG, workload=workload)
    assert tried(engine) == ([] if expected is None else ["autocast=bfloat16"])
    assert [advice.title for advice in advice_of(search)] == (expected or [])


def test_what_was_faster_is_proven_before_more_is_tried(tmp_path: Path) -> None:
    """A budget with room for the pairs of one: the first that was faster gets them."""
    switches = {"cudnn_benchmark": 1.4, "channels_last": 1.3, "compile": 2.0}
    engine = computing(switches=switches, observed={"compiled": False}, process_s=10.0)
    search = formula_search(tmp_path, engine, CONFIG, budget_s=120.0)
    assert [advice.title for advice in advice_of(search)] == ["cudnn_benchmark"]


def test_a_lucky_run_is_not_advised(tmp_path: Path) -> None:
    """Faster once by the draw: its pairs say so, and it is no advice."""
    advised = 0
    for seed in range(20):
        engine = computing(switches={"cudnn_benchmark": 1.0}, noise=0.1, seed=seed)
        (tmp_path / f"{seed}").mkdir()
        advised += bool(advice_of(formula_search(tmp_path / f"{seed}", engine, CONFIG)))
    assert advised <= 1


def test_a_spent_budget_is_said(tmp_path: Path) -> None:
    """A what-if is not begun where its pairs would not fit: one run alone is told to nobody. It
    changes nothing that is written, so the answer is whole."""
    engine = computing(switches={"compile": 2.0}, observed={"compiled": False}, process_s=10.0)
    search = formula_search(tmp_path, engine, CONFIG, budget_s=75.0)
    assert advice_of(search) == ()
    whats = [skipped.what for skipped in search.state.skipped]
    assert "compile in the code" in whats
    assert all(what.endswith(" in the code") for what in whats)
    assert search.state.suggestions == ()
    assert not any(skipped.matters for skipped in search.state.skipped)


FLAGS = "cudnn_benchmark: false\nchannels_last: false\n"


def test_a_flag_of_the_config_is_tuned_behind_the_guard(tmp_path: Path) -> None:
    """The config holds it, so the config is where it is switched on, proven and written."""
    engine = computing(flags={"cudnn_benchmark": 1.4, "channels_last": 1.0})
    search = formula_search(tmp_path, engine, FLAGS, workload=GUARD)
    assert [change.path for change in search.winner.changes] == ["cudnn_benchmark"]
    assert search.decisions["channels_last"].reason.startswith("No value tested was faster")
    assert not {"cudnn_benchmark", "channels_last"} & {*tried(engine)}


def test_a_flag_that_no_tolerance_allows_does_not_block_its_what_if(tmp_path: Path) -> None:
    """It is listed, and tried from inside like one that stands nowhere."""
    engine = computing(flags={"cudnn_benchmark": 1.4}, switches={"cudnn_benchmark": 1.4})
    search = formula_search(tmp_path, engine, FLAGS)
    assert search.winner.changes == ()
    assert search.decisions["cudnn_benchmark"].outcome == "listed"
    assert [advice.title for advice in advice_of(search)] == ["cudnn_benchmark"]


@pytest.mark.parametrize("budget_s", range(100, 180, 20))
def test_nothing_is_left_out_that_what_is_left_would_pay(tmp_path: Path, budget_s: int) -> None:
    """What several proposals need together never keeps the first of them from its rounds."""
    switches = {"channels_last": 1.3, "cudnn_benchmark": 1.25, "tf32": 1.2}
    engine = computing(process_s=10.0, noise=0.05, seed=budget_s, switches=switches)
    search = formula_search(tmp_path, engine, CONFIG, budget_s=budget_s)
    for skipped in search.state.skipped:
        assert skipped.needed_s > skipped.remaining_s, skipped
