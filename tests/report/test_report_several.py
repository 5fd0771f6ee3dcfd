"""Several processes: one and two as measured, more by the law of contention, and labelled so."""

from __future__ import annotations

import re

import pytest

from advisor.report import page, rendering, several
from advisor.report.model import ComparisonEntry, Gain
from tests.report import examples
from tests.report.reading import section


def report_of(ratio: float, low: float, high: float | None):  # type: ignore[no-untyped-def]
    calm = examples.improved()
    two = ComparisonEntry(
        purpose="scaling",
        title="two processes side by side against one",
        before="batch_size=8",
        after="batch_size=8 num_gpus=2",
        settings={"num_gpus": 2},
        gain=Gain(ratio=ratio, low=low, high=high, pairs=4),
    )
    return examples.improved(comparisons=[*calm.comparisons, two])


@pytest.mark.parametrize(
    ("two", "eight"), [(2.0, 8.0), (1.0, 1.0), (1.6, 8 / (1 + 7 * 0.25)), (2.2, 8.0)]
)
def test_what_the_second_takes_from_the_first_every_further_one_takes_from_all(
    two: float, eight: float
) -> None:
    """Two that do not disturb each other scale in full; two that share one device add nothing."""
    assert several.times(1, two) == 1
    assert several.times(2, two) == two
    assert several.times(8, two) == pytest.approx(eight)


def test_one_and_two_are_measured_and_the_rest_is_said_to_be_scaled() -> None:
    report = report_of(1.6, 1.5, 1.7)
    crews = several.crews(report)
    assert [crew.processes for crew in crews] == list(range(1, 9))
    assert [crew.how for crew in crews] == ["measured"] * 2 + ["scaled"] * 6
    assert report.after.units_per_s is not None
    assert crews[0].units_per_s == report.after.units_per_s
    assert crews[1].units_per_s == pytest.approx(1.6 * report.after.units_per_s)
    body = section(rendering.render(report), "How long it takes")
    assert "on the same CPUs" in body
    assert len(re.findall(r"\| scaled \|", body)) == 6
    rule = re.compile(r"^\|[:|-]+\|$")
    lines = rendering.render(report).splitlines()
    for above, line, below in zip(lines, lines[1:], lines[2:], strict=False):
        assert not rule.match(line) or (above[:1], below[:1]) == ("|", "|"), "a table in pieces"
    assert "|--" not in page.page(report, {})


def test_without_two_side_by_side_nothing_is_told_of_more() -> None:
    assert several.crews(examples.improved()) == []
    assert "several processes" not in rendering.render(examples.improved())


def test_bounds_too_wide_to_tell_a_size_leave_no_range() -> None:
    assert "(" not in several.crews(report_of(1.6, 1.0, None))[1].times[0]


def test_a_ratio_of_anything_but_rates_scales_no_times() -> None:
    """Two side by side have the latency of one: that is no word on how long 10,000 items take."""
    report = report_of(1.0, 0.99, 1.01).model_copy(update={"objective": "latency"})
    assert several.crews(report) == []
