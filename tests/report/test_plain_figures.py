"""Figures in sentences are written out: no reader has to undo `1.2e+03`."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from advisor import numbers
from advisor.model import Advice, Effects, Interval, SyncPoint
from advisor.report import advised, retrained, sentences, view, waste
from advisor.report.bottleneck import LargerBatch, diagnose
from tests.report import examples
from tests.runs import a_decision, a_run

POWERS = re.compile(r"\de[+]\d")
STOPPED = {
    "left-out": {"batch": 1048576.0, "left_out": 3, "left_out_before": 0},
    "constraint": {"constraint": "memory<=7GiB", "seen": 123456.0},
    "unfilled": {"seen": 12345678.0},
    "out-of-tolerance": {"beyond": "loss", "limit": 12345678.0, "runs": 1},
    "too-noisy": {"measure": "loss", "spread": 12345.0, "room": 1234.0, "most": 12},
}


@pytest.mark.parametrize("stop", STOPPED)
def test_what_stopped_a_search_is_told_in_plain_figures(stop: str) -> None:
    told = sentences.why(a_decision("loses-results", stop=stop, value=8, **STOPPED[stop]))
    assert not POWERS.search(told), told


def test_a_batch_that_is_a_thousand_times_as_large_is_told_in_plain_figures() -> None:
    data = {"times": 4096.0, "factor": 4096.0, "optimizer": "SGD", "rule": "linear", "runs": 1}
    told = [
        retrained.where_to_start(data),
        advised.advised(
            Advice(
                kind="training-batch",
                title="Batch 4096",
                gain=Interval(estimate=2.0, low=1.5, high=2.5, n=4),
                data=tuple(data.items()),
            )
        ),
    ]
    for line in told:
        assert "4,096 times" in line
        assert not POWERS.search(line), line


def test_a_number_read_from_every_item_is_told_in_plain_figures() -> None:
    """`.item()` once for each of 256 items of a step."""
    point = SyncPoint(site="train.py:9", call="item", per_step=256.0, ms=None)
    (line,) = waste.lines(replace(a_run(), syncs=(point,)))
    assert "256 times a step" in line


def test_a_batch_of_a_million_is_told_in_plain_figures() -> None:
    assert [numbers.count(each) for each in (7.5, 8.0, 1048576.0)] == ["7.5", "8", "1,048,576"]


def test_a_bottleneck_is_told_with_batches_in_plain_figures() -> None:
    run = a_run(effects=Effects(batch=1048576.0), wait_share=0.0)
    gain = Interval(estimate=2.0, low=1.5, high=2.5, n=4)
    found = diagnose([run, run], larger_batch=LargerBatch(batch=2097152.0, gain=gain))
    assert found is not None
    assert "A batch of 1,048,576 " in found.sentence
    assert "at a batch of 2,097,152 " in found.sentence


def test_what_units_cost_is_told_in_plain_figures() -> None:
    """A model that takes an hour a unit, on a card of two an hour."""
    calm = examples.on_gpu()
    slow = calm.before.model_copy(update={"units_per_s": 1 / 3600, "startup_s": None})
    rows = view.measures(examples.on_gpu(before=slow, price_per_hour=2.0))
    (cost,) = [row.before for row in rows if row.label.startswith("cost of 1,000")]
    assert cost == "2,000"


def test_a_measure_has_no_zeros_at_its_end() -> None:
    assert [numbers.measure(value, 3) for value in (8.0, 2.8284, 4096.0, 0.5)] == [
        "8", "2.83", "4,096", "0.5",
    ]  # fmt: skip
