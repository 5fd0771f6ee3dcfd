"""Figures that a program prints, as numbers: odd ones are unmeasured, and end no call."""

import math

import pytest

from advisor.quality import judge, loss_drifts, read_measures
from advisor.settings import QualityMeasure

MEASURES = {"psnr": QualityMeasure(pattern="x", better="higher", tolerance="5%")}


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e308", "x", "", "9" * 400])
def test_a_figure_that_is_none_is_unmeasured(text) -> None:
    assert read_measures(MEASURES, {"psnr": ("30.5", text)}) == {}


@pytest.mark.parametrize("figures", [("1e100",) * 9, ("5e-324", "0"), ("-1e100", "1e100"), ("0",)])
def test_figures_of_any_size_are_judged(figures) -> None:
    """The sum of many stays finite."""
    values = read_measures(MEASURES, {"psnr": figures})
    (found,) = judge(MEASURES, [(values, values)] * 2, "confirmed")
    assert found.value is not None
    assert math.isfinite(found.value)


@pytest.mark.parametrize("odd", [math.nan, math.inf, 1e308, -1e308])
def test_losses_without_bounds_are_apart(odd) -> None:
    assert set(loss_drifts((1.0,) * 16, (odd,) * 16)) == {math.inf}
    assert set(loss_drifts((odd,) * 16, (1.0,) * 16)) == {math.inf}
