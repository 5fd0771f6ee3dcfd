"""What each figure of a workload may lose is the base's word; red names the figure."""

from __future__ import annotations

import json
import math

import pytest
from gate_engine import in_process
from gate_examples import around, pair, program, run

from advisor.errors import SettingsError
from advisor.gate import allowances, modes, report
from advisor.gate.base import Checkout
from advisor.gate.measure import last_told
from advisor.gate.records import HostEntry, Inputs, OwnFigure, Revision
from advisor.gate.verdict import decide
from advisor.gate.workbench import decided
from advisor.settings import load
from tests.runs import a_run


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
    assert allowances.worse_pct(math.log(2), higher=True) == pytest.approx(50)
    assert allowances.worse_pct(math.log(2), higher=False) == pytest.approx(100)
    assert allowances.worse_pct(math.inf, higher=False) is None
    assert allowances.tau(1.0, higher=False) == pytest.approx(math.log(2))


@pytest.mark.parametrize("text", ['throughput = "0%"', 'throughput = "100%"', 'speed = "5%"'])
def test_a_bound_that_is_none_is_refused(tmp_path, text: str) -> None:
    path = tmp_path / "gpu-advisor.toml"
    path.write_text(f'[workload.train]\ncommand = "true"\n[workload.train.gate]\n{text}\n')
    with pytest.raises(SettingsError):
        load(path)


def test_a_request_cannot_loosen_its_own_bound(repo, tmp_path, monkeypatch) -> None:
    """Head allows itself half of the rate; base allowed 2 %, and base is what counts."""
    table = '[workload.train]\ncommand = "x"\n[workload.train.gate]\nthroughput = "{}"\n'
    repo.commit({"rate": "100", "gpu-advisor.toml": table.format("2%")})
    repo.commit({"rate": "88", "gpu-advisor.toml": table.format("50%")})
    gate = in_process(repo.path, tmp_path, monkeypatch, modes)
    record = gate(modes.ab, "--workload", "train", "--threshold", "50%")
    assert record.verdict == "regression"
    assert record.inputs.limits == {"train": {"throughput": 0.02}}
    assert "2 %" in json.dumps(record.reason)


# --- figures of the program's own ---------------------------------------------------------

OWN = """
[workload.train]
command = "python bench.py"
[workload.train.gate]
latency-p95 = "10%"
[workload.train.gate.metrics.recall]
pattern = 'recall: (\\S+)'
better = "higher"
limit = "2%"
[workload.train.gate.metrics.queue]
pattern = 'queue: (\\S+)'
better = "lower"
limit = "50%"
"""


def told(**values: tuple[float, float]):
    """A program whose rate is steady and whose own figures are these in base and head."""
    pairs = [
        pair(
            n,
            run("base", {"train": rate}, figures={k: v[0] for k, v in values.items()}),
            run("head", {"train": rate}, figures={k: v[1] for k, v in values.items()}),
        )
        for n, rate in enumerate(around(100), 1)
    ]
    return program(pairs)


@pytest.mark.parametrize(
    ("recall", "queue", "red", "said"),
    [
        ((0.9, 0.9), (8, 8), None, ""),
        ((0.9, 0.99), (8, 2), None, ""),
        ((0.9, 0.8), (8, 8), "train: recall", "less recall by more than 2 %"),
        ((0.9, 0.9), (8, 16), "train: queue", "more queue by more than 50 %"),
    ],
)
def test_a_figure_of_its_own_is_bounded_the_way_that_is_worse(
    tmp_path, recall, queue, red, said
) -> None:
    """Less is worse of what is better higher; red names the figure."""
    (tmp_path / "gpu-advisor.toml").write_text(OWN)
    checkout = Checkout(top=tmp_path, cwd=tmp_path, revision=Revision())
    inputs = allowances.of_base(Inputs(), checkout, ["train"])
    measured_ = told(recall=recall, queue=queue, latency_p95=(5.0, 5.1))
    record = decided([measured_], inputs, HostEntry(), "replay")
    assert record.verdict == ("regression" if red else "pass"), record.reason
    if red:
        assert record.workloads[0].name == red
        assert said in record.reason
        assert said.split(" by ")[0] in report.lines(record)
    slower = told(recall=(1, 1), queue=(1, 1), latency_p95=(5.0, 6.0))
    assert decide([slower], inputs).leading.name == "train: latency_p95"


def test_what_the_output_does_not_tell_is_not_measured(tmp_path) -> None:
    figures = {
        name: OwnFigure(pattern=rf"{name}: (\S+)", better="lower")
        for name in ("a", "b", "c", "d", "e", "f")
    }
    output = "a: 3\na: 2.5\nb: nan\nc: 0\nd: soon\ne: -1\nf: 1e999\n"
    found = allowances.own_figures(figures, lambda pattern: last_told(output, pattern))
    assert found == {"a": 2.5}
    found = decide([told(other=(1, 1))], Inputs(limits={"train": {"recall": 0.1}}))
    assert found.verdict == "no-baseline"


def test_the_latency_at_p95_is_read_from_the_run() -> None:
    assert allowances.figures(a_run(latency_p95_ms=7.5))["latency_p95"] == 7.5


@pytest.mark.parametrize(
    "wrong",
    [
        ("recall", "throughput"), ("recall", '"two words"'), ("recall", '"a\\nb"'),
        ('better = "higher"', 'better = "more"'), ('limit = "2%"', 'limit = "0%"'),
        ('limit = "2%"', 'limit = "100%"'), ("(\\\\S+)'", "'"),
    ],
)  # fmt: skip
def test_a_figure_that_cannot_be_bounded_is_refused(tmp_path, wrong: tuple[str, str]) -> None:
    path = tmp_path / "gpu-advisor.toml"
    assert wrong[0].replace("\\\\", "\\") in OWN
    path.write_text(OWN.replace(wrong[0].replace("\\\\", "\\"), wrong[1], 1))
    with pytest.raises(SettingsError):
        load(path)


def test_figures_are_those_that_base_bounds(repo, tmp_path, monkeypatch) -> None:
    """Head's own settings, which ask for nothing, do not count."""
    table = '[workload.train]\ncommand = "x"\n'
    own = "[workload.train.gate.metrics.recall]\npattern = 'recall: (\\S+)'\n"
    asks = f'{table}{own}better = "higher"\nlimit = "2%"\n'
    repo.commit({"gpu-advisor.toml": asks, "rate": "1", "said": "recall: 0.5\nrecall: 0.9\n"})
    repo.commit({"gpu-advisor.toml": table, "said": "recall: 0.8\n"})
    record = in_process(repo.path, tmp_path, monkeypatch, modes)(modes.ab, "--workload", "train")
    assert record.verdict == "regression"
    assert record.workloads[0].name == "train: recall"
    assert record.slowdown_pct == pytest.approx(100 / 9)
