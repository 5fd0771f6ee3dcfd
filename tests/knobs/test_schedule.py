"""Fewer steps must end in the same terminal signal."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.knobs import catalogue, schedule


def test_the_log_signal_is_that_of_the_textbook_product() -> None:
    betas = np.linspace(1e-6, 0.01, 2000)
    assert schedule.log_signal(1e-6, 0.01, 2000) == pytest.approx(np.log1p(-betas).sum())
    roots = np.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2
    got = schedule.log_signal(0.00085, 0.012, 1000, "root-line")
    assert got == pytest.approx(np.log1p(-roots).sum())


@pytest.mark.parametrize("shape", ["line", "root-line"])
@pytest.mark.parametrize(("start", "end", "steps"), [(1e-4, 0.02, 1000), (1e-6, 0.01, 2000)])
@pytest.mark.parametrize("new", [1500, 512, 37])
def test_the_ends_keep_the_terminal_signal_and_their_ratio(
    shape: catalogue.Shape, start: float, end: float, steps: int, new: int
) -> None:
    first, last = schedule.rescaled_schedule(start, end, steps, new, shape)
    kept = schedule.log_signal(first, last, new, shape)
    assert kept == pytest.approx(schedule.log_signal(start, end, steps, shape), rel=1e-3)
    assert last / first == pytest.approx(end / start, rel=1e-4)
    assert last < 1


def test_the_ends_are_tidy_numbers() -> None:
    for end in schedule.rescaled_schedule(1e-6, 0.01, 2000, 512):
        assert len(f"{end:.17g}".rstrip("0")) <= 24
        assert float(f"{end:.6g}") == end


def test_too_few_steps_are_refused_with_the_numbers() -> None:
    with pytest.raises(ValueError, match=r"3 steps cannot reach the terminal signal 6\.6e-21"):
        schedule.rescaled_schedule(1e-4, 0.09, 1000, 3)


def test_a_schedule_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="outside"):
        schedule.rescaled_schedule(0.1, 1.5, 10, 5)
    with pytest.raises(ValueError, match="no noise"):
        schedule.rescaled_schedule(0.0, 0.0, 10, 5)
