"""Networks that take turns: which one to feed, what that can give at most, what was reached."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.model import Stage
from advisor.report import rendering, stages
from advisor.report.bounds import bounds
from advisor.report.model import Report, StageEntry
from tests.report import examples
from tests.report.reading import section
from tests.runs import a_run


def entry(name: str, share: float, calls: float, batch: float) -> StageEntry:
    return StageEntry(
        name=name,
        site=f"stages.py:{len(name)}",
        share=share,
        share_low=share - 0.01,
        share_high=share + 0.01,
        calls_per_unit=calls,
        batch=batch,
    )


def report_of(after: list[StageEntry], **changes: Any) -> Report:
    """100 units a second before and 250 after."""
    calm = examples.improved()
    before = [entry("Segmenter", 0.8, 1, 1), entry("Albedo", 0.15, 1, 1)]
    return examples.improved(
        before=calm.before.model_copy(update={"stages": before, "units_per_s": 100.0}),
        after=calm.after.model_copy(update={"stages": after, "units_per_s": 250.0}),
        **changes,
    )


BATCHED = [entry("Segmenter", 0.5, 1 / 16, 16), entry("Albedo", 0.375, 1, 1)]


def test_the_largest_is_named_with_the_bound_of_amdahls_law_and_what_was_reached() -> None:
    """80 % of the time: 5x at most. 8 ms a unit became 2 ms: a quarter."""
    report = report_of(BATCHED)
    said = " ".join(stages.told(report))
    assert "Segmenter (stages.py:9) takes 80 % of the time (79 % to 81 % in equal runs)" in said
    assert "the rate would be 5.00x" in said
    assert "With 16 tiles a call it takes 1/4 of that time" in said
    assert "2.91x (2.71 to 3.12)" in said
    assert "None of the others gained" in said


def test_each_row_is_a_time_a_unit_and_the_code_between_them_is_the_rest() -> None:
    report = report_of(BATCHED)
    segmenter, albedo, rest = stages.rows(report)
    assert (segmenter.before, segmenter.after) == ("8.00 ms (80 %)", "2.00 ms (50 %)")
    assert (segmenter.calls_before, segmenter.calls_after) == ("1.00 of 1", "0.0625 of 16")
    assert (segmenter.faster, albedo.faster, rest.faster) == ("4.00x", "1.00x", "1.00x")
    assert rest.before == "500 us (5.0 %)"
    body = section(rendering.render(report), "Where the time goes")
    assert "| `Segmenter` | stages.py:9 | 8.00 ms (80 %) |" in body
    assert "| code outside them |" in body


def test_a_stage_that_was_faster_too_is_told() -> None:
    quick = [BATCHED[0], entry("Albedo", 0.2, 1, 1)]
    assert "Faster as well: Albedo" in " ".join(stages.told(report_of(quick)))


def test_where_nothing_was_changed_only_the_bound_is_told() -> None:
    report = report_of(BATCHED, changes=[], verdict="unchanged", gain=None)
    said = " ".join(stages.told(report))
    assert "5.00x" in said
    assert "reached" not in said
    assert "as fast" not in section(rendering.render(report), "Where the time goes")


def test_one_network_is_no_stage() -> None:
    assert stages.rows(examples.improved()) == []
    assert "one after another" not in rendering.render(examples.improved())


def test_runs_that_tell_of_other_networks_are_not_averaged() -> None:
    """A mean over some of the runs is no mean of all."""
    one = a_run(stages=(Stage(name="A", share=0.5, calls_per_unit=1),))
    other = a_run(stages=(Stage(name="B", share=0.5, calls_per_unit=1),))
    assert stages.entries([one, other]) == []
    assert stages.entries([]) == []
    (mean,) = stages.entries([one, a_run(stages=(Stage(name="A", share=0.7, calls_per_unit=1),))])
    assert (mean.share, mean.share_low, mean.share_high) == (pytest.approx(0.6), 0.5, 0.7)


def test_a_profile_bounds_each_network_by_its_share() -> None:
    """1 / (1 - 0.8): were it to take no time."""
    run = a_run(
        stages=(
            Stage(name="Segmenter", site="s.py:3", share=0.8, calls_per_unit=1, batch=1),
            Stage(name="Albedo", share=0.15, calls_per_unit=1, batch=1),
        )
    )
    largest, second = bounds([run, run])
    assert largest.title == "Give Segmenter more at once, or make it faster"
    assert largest.at_most is not None
    assert largest.at_most.estimate == pytest.approx(5.0)
    assert "s.py:3" in largest.detail
    assert "Albedo" in second.title


def test_what_was_reached_is_told_of_rates_alone() -> None:
    """The bound is one of the rate: a gain of the latency is not set beside it."""
    said = " ".join(stages.told(report_of(BATCHED, objective="latency")))
    assert "the rate would be 5.00x" in said
    assert "1/4 of that time" in said
    assert "the whole reached" not in said


def test_more_a_call_is_promised_only_where_it_was_seen_to_help() -> None:
    """Left as it was, or with calls as large as before, nobody knows that more would gain."""
    calm = examples.unchanged()
    before = calm.before.model_copy(update={"stages": [entry("Segmenter", 0.8, 1 / 64, 64)]})
    left = " ".join(stages.told(examples.unchanged(before=before, after=before)))
    assert "in calls of 64: if one is to be given more tiles a call, it is this one" in left
    assert "worth more" not in left
    same = [entry("Segmenter", 0.5, 1, 1), entry("Albedo", 0.375, 1, 1)]
    said = " ".join(stages.told(report_of(same)))
    assert "worth more" not in said
    assert "a call it takes" not in said
    assert "Its calls hold as many as before" in said


def test_a_stage_that_became_slower_is_told_as_slower() -> None:
    """2 of 4 ms: half as fast, not one half-th of the time."""
    slower = [entry("Segmenter", 0.95, 1 / 16, 16), entry("Albedo", 0.04, 1, 1)]
    report = report_of(slower)
    before = report.before.model_copy(update={"units_per_s": 500.0})
    said = " ".join(stages.told(report.model_copy(update={"before": before})))
    assert "it takes 2.4 times that time" in said
    assert "1/0" not in said
