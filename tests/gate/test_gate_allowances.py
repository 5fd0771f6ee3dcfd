"""What each figure of a workload may lose is the base's word; red names the figure."""

from __future__ import annotations

import json
import math

import pytest
from gate_examples import around, pair, program, run

from advisor.errors import SettingsError
from advisor.gate import allowances, report
from advisor.gate.records import HostEntry, Inputs
from advisor.gate.verdict import decide
from advisor.gate.workbench import decided
from advisor.settings import load
from tests.gate.repos import STEADY


def measured(memory_base: float, memory_head: float, **more: float):
    """A program whose rate is steady and whose memory is what is given."""
    pairs = [
        pair(
            n,
            run("base", {"train": value}, figures={"memory": memory_base} if memory_base else {}),
            run("head", {"train": value}, figures={"memory": memory_head} if memory_head else {}),
        )
        for n, value in enumerate(around(100), 1)
    ]
    return program(pairs)


def bounded(*programs, **limits: float):
    return decide(programs, Inputs(limits={"train": limits}))


def test_more_memory_than_allowed_is_red_and_says_that_it_is_memory() -> None:
    found = bounded(measured(10.0, 11.5), memory=0.10)
    assert found.verdict == "regression"
    assert found.leading.name == "train: memory"
    assert found.leading.slowdown_pct == pytest.approx(15)
    assert "more memory by more than 10 %" in found.reason
    assert {w.name: w.verdict for w in found.workloads}["train"] == "pass"
    record = decided(
        [measured(10.0, 11.5)], Inputs(limits={"train": {"memory": 0.1}}), HostEntry(), "replay"
    )
    assert "15.0 % more memory" in report.lines(record)
    assert "allowed: 10 %" in report.lines(record)


def test_less_memory_and_growth_within_the_bound_pass() -> None:
    assert bounded(measured(10.0, 10.5), memory=0.10).verdict == "pass"
    less = bounded(measured(10.0, 8.0), memory=0.10)
    assert less.verdict == "pass"
    assert any("proven less" in w.reason for w in less.workloads)


def test_what_is_not_bounded_is_not_judged() -> None:
    assert [w.name for w in bounded(measured(10.0, 20.0)).workloads] == ["train"]


def test_what_is_bounded_and_not_measured_is_no_pass() -> None:
    found = bounded(measured(10.0, 0.0), memory=0.10)
    assert found.verdict == "no-baseline"
    assert "memory, which is not measured in head" in found.reason


def test_a_rate_may_have_a_threshold_of_its_own() -> None:
    pairs = [
        pair(n, run("base", {"train": value}), run("head", {"train": 0.96 * value}))
        for n, value in enumerate(around(100), 1)
    ]
    assert bounded(program(pairs)).verdict == "pass"
    strict = bounded(program(pairs), throughput=0.02)
    assert strict.verdict == "regression"
    assert strict.leading.threshold == 0.02


def test_growth_and_drop_are_told_in_percent_of_base() -> None:
    assert allowances.worse_pct("throughput", math.log(2)) == pytest.approx(50)
    assert allowances.worse_pct("memory", math.log(2)) == pytest.approx(100)
    assert allowances.worse_pct("memory", math.inf) is None
    assert allowances.tau("memory", 1.0) == pytest.approx(math.log(2))


@pytest.mark.parametrize("text", ['throughput = "0%"', 'throughput = "100%"', 'speed = "5%"'])
def test_a_bound_that_is_none_is_refused(tmp_path, text: str) -> None:
    path = tmp_path / "gpu-advisor.toml"
    path.write_text(f'[workload.train]\ncommand = "true"\n[workload.train.gate]\n{text}\n')
    with pytest.raises(SettingsError):
        load(path)


def test_a_request_cannot_loosen_its_own_bound(repo) -> None:
    """Head allows itself half of the rate; base allowed 2 %, and base is what counts."""
    table = '[workload.train]\ncommand = "python bench.py"\n[workload.train.gate]\n'
    repo.commit(
        {
            "bench.py": STEADY.format(rate=100),
            "gpu-advisor.toml": f'{table}throughput = "2%"\n',
        }
    )
    repo.commit(
        {"bench.py": STEADY.format(rate=88), "gpu-advisor.toml": f'{table}throughput = "50%"\n'}
    )
    found = repo.gate("--workload", "train", "--threshold", "50%")
    assert (found.code, found.record.verdict) == (1, "regression"), found.stderr
    assert found.record.inputs.limits == {"train": {"throughput": 0.02}}
    assert "2 %" in json.dumps(found.record.reason)
