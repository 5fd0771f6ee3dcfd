"""No figure of a page contradicts another one; and where one does, it is found."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.report import examples, golden
from tests.support.contradictions import RULES, contradictions

Spoil = Callable[[dict[str, Any]], object]


def recorded(name: str) -> dict[str, Any]:
    return golden.report(name).model_dump(mode="json")


@examples.every_report
def test_figures_of_the_golden_reports_agree(name) -> None:
    assert contradictions(recorded(name), golden.markdown(name)) == []


SPOILT: dict[str, tuple[str, Spoil]] = {
    "a_rate_lies_within_its_bounds": ("gpu", lambda r: r["after"].update(units_per_s_low=5e3)),
    "the_gain_is_after_over_before": ("gpu", lambda r: r["after"].update(units_per_s=1366.0)),
    "shares_sum_to_the_whole": ("gpu", lambda r: r["after"]["shares"].update(compute=1.2)),
    "a_card_computes_no_longer_than_nvml_saw_it": (
        "gpu",
        lambda r: r["after"].update(shares={"launch": 0.04, "compute": 0.96}, gpu_util_pct=40.0),
    ),
    "memory_fits": ("gpu", lambda r: r["after"].update(gpu_mem_used_gib=30.0)),
    "the_batch_written_is_the_batch_that_ran": ("gpu", lambda r: r["after"].update(batch=16.0)),
    "changes_stand_in_the_diff_and_the_bars": ("gpu", lambda r: r.update(diff="+ nothing")),
    "the_table_has_the_records_figures": (
        "gpu", lambda r: r["before"].update(units_per_s=410.0 * 1.1)
    ),
    "the_headline_has_the_tables_gain": ("gpu", lambda r: r["gain"].update(ratio=3.0)),
    "parts_of_a_unit_sum_to_it": ("gpu", lambda r: r["before"].update(units_per_s=817.0)),
    "a_step_fits_its_rate": (
        "gpu",
        lambda r: r["bottleneck_after"].update(
            sentence="Compute takes 90 % of the time, at 1,300 to 1,400 samples/s in 2 runs.",
            evidence=["One optimizer step took 96.0 ms (batch 64, accumulation 1)."],
        ),
    ),
    "parts_in_words_leave_room_for_each_other": (
        "gpu",
        lambda r: r["bottleneck_after"].update(
            sentence="Waiting for data takes 60 % to 70 % of the time, at 9 to 10 samples/s in 2 "
            "runs. The GPU computed during at least 55 % to 58 %. NVML saw it at work in 80 %."
        ),
    ),
    "trials_are_those_of_the_table": ("gpu", lambda r: r["trials"].pop()),
    "rounds_are_those_of_their_gain": (
        "improved", lambda r: r["comparisons"][0]["gain"].update(ratio=3.0, low=2.9, high=3.1)
    ),
    "what_was_not_tried_has_no_trial": (
        "gpu",
        lambda r: r["decisions"][0].update(reason="The call ended before it came to this setting."),
    ),
    "what_is_ignored_is_no_best_candidate": (
        "gpu",
        lambda r: r.update(
            reason=f"The best candidate, {r['trials'][-1]['label']}, was not proven.",
            decisions=[
                {**r["decisions"][0], "outcome": "ignored", "trials": [r["trials"][-1]["id"]]}
            ],
        ),
    ),
    "batches_run_as_their_labels_say": (
        "gpu", lambda r: [trial.update(batch=3.0) for trial in r["trials"]]
    ),
    "energy_is_power_over_rate": ("gpu", lambda r: r["after"]["figures"].update(power=20.0)),
}  # fmt: skip


def test_every_rule_is_held() -> None:
    assert {rule.__name__ for rule in RULES} == set(SPOILT)


@pytest.mark.parametrize("rule", SPOILT)
def test_a_figure_that_contradicts_another_is_found(rule) -> None:
    """The page stays, and the record beside it has another figure."""
    name, spoil = SPOILT[rule]
    report = copy.deepcopy(recorded(name))
    spoil(report)
    found = contradictions(report, golden.markdown(name))
    assert any(each.startswith(f"{rule}: ") for each in found), found
