"""What moved: the part that grew leads, with its share of the added time."""

from __future__ import annotations

import pytest
from gate_examples import BUSY, around, failed, program_of, run

from advisor.gate import report
from advisor.gate.attribution import compare
from advisor.gate.records import HostEntry, Inputs
from advisor.gate.workbench import decided


def told(base_rate, head_rate, base_shares, head_shares, base=None, head=None):
    return compare(
        "train",
        run("base", {"train": base_rate}, shares=base_shares, **(base or {})),
        run("head", {"train": head_rate}, shares=head_shares, **(head or {})),
    )


def test_the_part_that_grew_is_named_with_its_share() -> None:
    """10 ms a sample become 12.5 ms: waiting for data grew from 1 to 3.5 ms, all of it."""
    found = told(100, 80, {"data_wait": 0.1, "compute": 0.9}, {"data_wait": 0.28, "compute": 0.72})
    assert found.sentence.startswith("Waiting for data grew from 1 ms to 3.5 ms a sample: 100 %")
    assert [line.what for line in found.moved[:3]] == [
        "waiting for data, a sample",
        "compute, a sample",
        "whole time, a sample",
    ]
    assert found.moved[0].change == "+250 %"
    assert found.moved[1].change == "same"


def test_the_first_line_of_a_regression_says_why() -> None:
    """Whoever reads one line of the report has the cause."""
    found = decided([program_of(around(100), around(80))], Inputs(), HostEntry(), "ab")
    why = told(100, 80, {"compute": 1.0}, {"compute": 1.0})
    line = report.lines(found.model_copy(update={"attribution": [why]})).splitlines()[0]
    assert "proven slower by more than 5 %. Compute grew from 10 ms to 12.5 ms a sample" in line


def test_settings_that_differ_are_named() -> None:
    found = told(
        100, 80, {"compute": 1.0}, {"compute": 1.0},
        base={"effects": {"workers": 4, "dtype": "bfloat16"}},
        head={"effects": {"workers": 0, "dtype": "bfloat16"}},
    )  # fmt: skip
    assert "Settings that differ: workers (4 to 0)." in found.sentence
    assert [(m.what, m.base, m.head) for m in found.moved if m.change == "differs"] == [
        ("workers", "4", "0")
    ]


def test_clocks_and_memory_are_shown() -> None:
    slower_clock = BUSY.model_copy(update={"sm_clock_mhz": 1500.0})
    found = told(
        100, 80, {"compute": 1.0}, {"compute": 1.0},
        base={"gpu": BUSY, "peak_mem_gib": 10.0}, head={"gpu": slower_clock, "peak_mem_gib": 12.0},
    )  # fmt: skip
    lines = {line.what: (line.base, line.head, line.change) for line in found.moved}
    assert lines["SM clock"] == ("1980 MHz", "1500 MHz", "-24 %")
    assert lines["peak memory"] == ("10 GiB", "12 GiB", "+20 %")


def test_a_slowdown_that_does_not_show_again_is_not_explained_away() -> None:
    assert "does not show" in told(100, 100, {"compute": 1.0}, {"compute": 1.0}).sentence


@pytest.mark.parametrize("arm", ["base", "head"])
def test_a_failed_extra_run_is_said_so(arm: str) -> None:
    runs = {name: run(name, {"train": 1.0}) for name in ("base", "head")}
    runs[arm] = failed(arm, "crash-step", "out of luck")
    found = compare("train", runs["base"], runs["head"])
    assert f"the extra run of {arm} failed: out of luck" in found.sentence
