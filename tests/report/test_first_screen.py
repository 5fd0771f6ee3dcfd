"""The first screen: both gains in its headline, rates as bars, quality beside its tolerance."""

from collections.abc import Mapping

import pytest

from advisor.quality import QualityJudgement
from advisor.report import view
from advisor.report.schema import QualityEntry, Report, RoundEntry
from tests.report import examples, golden

BOTH = golden.report("quality-gated")
"""A report with free settings and fewer steps."""
WIDTH = 80
"""Columns of the narrowest terminal that is usual."""


def test_the_headline_tells_what_was_free_and_what_the_tolerance_bought() -> None:
    assert view.title(BOTH) == (
        "1.42x as many tiles a second for nothing, 2.91x inside 2 % of rmse and 2 % of slope"
    )
    assert "nothing" not in view.title(examples.improved())
    only_traded = BOTH.model_copy(update={"gain_free": None})
    assert view.title(only_traded).startswith("2.91x as many tiles a second inside 2 % of rmse")


def test_a_gain_that_was_measured_beside_other_work_says_so_in_the_headline() -> None:
    """Of three rounds that counted two were disturbed, and then one."""
    proof = next(each for each in BOTH.comparisons if each.purpose == "confirm")

    def told(*disturbed: str | None) -> bool:
        rounds = [
            RoundEntry(round=number, before=1.0, after=2.0, contended=arms)
            for number, arms in enumerate(disturbed)
        ]
        comparison = proof.model_copy(update={"rounds": rounds})
        report = BOTH.model_copy(update={"comparisons": [comparison]})
        return view.title(report).endswith(", measured under load")

    assert told("after", "before, after", None)
    assert not told("after", None, None)


@examples.every_report
def test_bars_are_as_long_as_the_rates_of_the_table(name) -> None:
    report = golden.report(name)
    lines = view.bars(report).splitlines()
    assert all(len(line) <= WIDTH for line in lines)
    if report.gain is None:
        assert not lines
        return
    assert max(line.count(view.BLOCKS[-1]) for line in lines) == view.LONGEST_BAR
    before = next(line for line in lines if line.startswith("before "))
    share = report.before.units_per_s / report.after.units_per_s
    assert before.count(view.BLOCKS[-1]) == pytest.approx(view.LONGEST_BAR * share, abs=1)


def test_the_bar_between_is_there_only_where_a_tolerance_bought_the_rest() -> None:
    names = [line.split("  ")[0] for line in view.bars(BOTH).splitlines()]
    assert names == ["before", "for nothing", "after"]
    assert "for nothing" not in view.bars(examples.improved())


def judged(tolerance: str, old: float, limit: float, new: float, worst: float) -> Report:
    """A report of one confirmed measure."""
    low, high = sorted((worst, new))
    judgement = QualityJudgement(
        measure="m", value=new, reference=old, limit=limit, low=low, high=high,
        runs=4, items=1, stage="confirmed", within=True,
    )  # fmt: skip
    entry = QualityEntry(candidate="c", judgement=judgement)
    tolerances: Mapping[str, str] = {"m": tolerance}
    return BOTH.model_copy(update={"quality": [entry], "tolerances": tolerances})


@pytest.mark.parametrize(
    ("figures", "shown"),
    [
        (("2%", 0.5, 0.51, 0.502, 0.506), "0.4 % worse (at most 1.2 % worse); 2 % allowed"),
        (("2%", 30.0, 29.4, 29.7, 29.55), "1.0 % worse (at most 1.5 % worse); 2 % allowed"),
        (("2%", 0.5, 0.51, 0.49, 0.504), "2.0 % better (at most 0.8 % worse); 2 % allowed"),
        (("0.03", 0.06, 0.09, 0.07, 0.08), "0.01 worse (at most 0.02 worse); 0.03 allowed"),
    ],
    ids=["lower is better", "higher is better", "better", "absolute"],
)
def test_a_measure_stands_beside_its_change_its_bound_and_its_tolerance(figures, shown) -> None:
    assert view.quality_change(judged(*figures), "m") == shown


def test_a_measure_that_no_change_was_held_to_has_no_tolerance() -> None:
    assert view.quality_change(BOTH.model_copy(update={"tolerances": {}}), "rmse") == ""


@pytest.mark.parametrize(("changed", "cut"), [(6, 0), (7, 12)])
def test_a_diff_of_up_to_twelve_changed_lines_is_shown_whole(changed, cut) -> None:
    """Names of files and places are no changed lines, and neither is what stands around them."""
    pairs = "".join(f"-a{number}: 1\n+a{number}: 2\n around\n" for number in range(changed))
    diff = f"--- a/c.yaml\n+++ b/c.yaml\n@@ -1,9 +1,9 @@\n{pairs}"
    shown = view.short_diff(examples.improved(diff=diff))
    assert (shown == diff) is not bool(cut)
    assert shown.endswith(f"... {cut} more changed lines") is bool(cut)
