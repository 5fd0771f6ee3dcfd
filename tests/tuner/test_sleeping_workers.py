"""Loader workers that sleep are worth more than there are CPUs; busy ones are not."""

from dataclasses import replace
from typing import Any

import pytest

from advisor.model import Failure, Run, Trial
from tests.support.simulator.engine import RecordedEngine
from tests.support.simulator.formula import Formula
from tests.support.simulator.search import FormulaSearch, formula_search, on_formula
from tests.tuner.configs import TEST

CPUS = 2
DISK: dict[str, Any] = {"load_s": 0.02, "launch_s": 0.0005, "unit_s": 0.001}
"""A read takes twenty times what the model does with it."""
TEXT = "batch_size: 8\nnum_workers: 2\n"
NO_WORKERS = "batch_size: 8\nnum_workers: 0\n"


def searched(folder: Any, **more: Any) -> FormulaSearch:
    engine = on_formula(**DISK, **more, noise=0.02, process_s=3.0)
    return formula_search(
        folder, engine, TEXT, workload=TEST, cpus=CPUS, budget_s=600.0, host_memory_gib=8.0
    )


def counts_alone(search: FormulaSearch) -> set[int]:
    """Counts at which the loader ran alone."""
    return {n for each in search.engine.asked for n in each.trial.plan.ceilings_workers}


def test_workers_that_sleep_are_more_than_the_cpus(tmp_path) -> None:
    """The loader alone shows that they gain, then whole runs prove it; the counts are told."""
    search = searched(tmp_path, load_cpu_s=0.0004)
    assert counts_alone(search) == {0, 1, 2, 4, 8, 16}
    assert search.values["num_workers"] == 16
    true = Formula(**DISK)
    start = {"batch_size": 8, "num_workers": 2}
    assert true.rate(start | search.values) > 6 * true.rate(start)
    reason = search.decisions["num_workers"].reason
    assert "16 that ran" in reason
    assert "They sleep most of the time, so 2 CPUs serve more workers than that." in reason


@pytest.mark.parametrize("load_cpu_s", [0.02, 0.011, None])
def test_busy_workers_are_no_more_than_the_cpus(tmp_path, load_cpu_s) -> None:
    """Nor those of which nothing is known: each further count would cost a start."""
    search = searched(tmp_path, load_cpu_s=load_cpu_s)
    assert max(counts_alone(search)) == CPUS
    assert max(each.values["num_workers"] for each in search.engine.asked) == CPUS


def test_memory_of_the_workers_bounds_their_number(tmp_path) -> None:
    """Half of 8 GiB holds four workers of 0.9 GiB."""
    search = searched(tmp_path, load_cpu_s=0.0004, worker_gib=0.9)
    assert max(counts_alone(search)) == 4
    assert search.values["num_workers"] == 4


def test_a_loader_that_is_not_waited_for_runs_at_no_further_count(tmp_path) -> None:
    engine = on_formula(load_s=1e-5, unit_s=0.01, load_cpu_s=1e-6, process_s=3.0)
    search = formula_search(tmp_path, engine, TEXT, workload=TEST, cpus=CPUS, budget_s=600.0)
    assert max(counts_alone(search)) == CPUS


@pytest.mark.parametrize("own", [0, 1])
def test_workers_are_tried_where_the_loader_alone_could_not_tell_their_gain(tmp_path, own) -> None:
    """It deals its items by the config's count, so it fails alone at any other."""
    slow = {**DISK, "load_s": 0.2}  # one worker beside the step gains nothing to see
    engine = on_formula(**slow, own_count_alone=True, noise=0.02, process_s=3.0)
    text = f"batch_size: 8\nnum_workers: {own}\n"
    search = formula_search(tmp_path, engine, text, workload=TEST, cpus=CPUS, budget_s=600.0)
    assert counts_alone(search) >= {0, 1, 2}
    assert {run.ceilings[0].workers for run in search.state.originals if run.ceilings} == {own}
    assert search.values["num_workers"] == CPUS


class LoaderAloneDisturbed(RecordedEngine):
    """Others have the CPUs while the loader runs alone: more workers load no faster than none."""

    def run(self, trial: Trial, *args: Any, **more: Any) -> Run | Failure:
        result = super().run(trial, *args, **more)
        if not isinstance(result, Run):
            return result
        alone = (replace(each, units_per_s=80.0 + each.workers) for each in result.ceilings)
        return replace(result, ceilings=tuple(alone))


def test_a_program_that_mostly_waits_tries_workers_whatever_the_loader_alone_said(tmp_path) -> None:
    """It waits for nine tenths of its time: one run is cheap beside what workers may gain."""
    engine = on_formula(LoaderAloneDisturbed, load_s=0.01, unit_s=0.001, noise=0.02, process_s=3.0)
    search = formula_search(tmp_path, engine, NO_WORKERS, workload=TEST, cpus=CPUS, budget_s=600.0)
    assert search.values["num_workers"] == CPUS
