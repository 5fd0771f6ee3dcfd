"""Bounds are arithmetic on one run: no part can give more than the time it takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.model import Ceilings, Effects, LoaderCeiling, Run, Shares, Telemetry
from advisor.tuning.bottleneck import diagnose
from advisor.tuning.bounds import bounds, idle_reasons, measured_parts

RUN = Run(
    trial_id="1",
    purpose="profile",
    label="original",
    candidate_key="k",
    unit="tile",
    units=100.0,
    units_per_s=50.0,
    rate_source="formula",
    window_start=0.0,
    window_end=2.0,
    wait_share=0.6,
    shares=Shares(data_wait=0.6, compute=0.3, other=0.1),
    effects=Effects(workers=0, device="cpu"),
)


def by_title(run: Run) -> dict[str, float | None]:
    return {each.title: each.at_most for each in bounds(run, cpus=2)}


def test_each_part_gives_at_most_what_it_takes_and_the_largest_stands_first() -> None:
    assert list(by_title(RUN).values()) == pytest.approx([1 / 0.4, 1 / 0.7, 1 / 0.9])
    assert bounds(RUN)[0].title == "Feed the data faster"


def test_parts_not_measured_bound_nothing() -> None:
    unknown = replace(RUN, shares=Shares(), wait_share=None)
    assert bounds(unknown) == ()
    assert measured_parts(unknown.shares) == {}
    assert idle_reasons(unknown) == ()


def test_a_part_that_takes_all_the_time_has_no_bound() -> None:
    stuck = replace(RUN, shares=Shares(data_wait=1.0, compute=0.0, other=0.0))
    assert by_title(stuck) == {"Feed the data faster": None}


def test_half_the_sampling_steps_save_half_of_what_is_not_waiting() -> None:
    sampler = replace(RUN, effects=replace(RUN.effects, forwards_per_unit=100.0))
    assert by_title(sampler)["Take fewer sampling steps"] == pytest.approx(1 / 0.8)


def test_on_a_gpu_the_host_may_wait_for_the_model_outside_its_calls() -> None:
    """Its calls return at once; what they started is waited for at some `.item()` later."""
    gpu = replace(RUN, effects=Effects(device="cuda:0"), telemetry=Telemetry(gpu_util_pct=95.0))
    assert by_title(gpu)["Make the compute faster"] == pytest.approx(1 / 0.6)
    quick = replace(gpu, wait_share=0.0, shares=Shares(data_wait=0.0, compute=0.2, other=0.8))
    assert diagnose(quick).name == "compute"
    idle = replace(quick, telemetry=Telemetry(gpu_util_pct=20.0))
    assert diagnose(idle).name == "host code"
    assert "80 %" in idle_reasons(idle)[0]


def test_two_different_bottlenecks_give_two_different_sentences() -> None:
    slow_loop = replace(
        RUN, wait_share=0.02, shares=Shares(data_wait=0.02, compute=0.1, other=0.88)
    )
    compute = replace(RUN, wait_share=0.02, shares=Shares(data_wait=0.02, compute=0.9, other=0.08))
    names = [diagnose(run).name for run in (RUN, slow_loop, compute)]
    assert names == ["data", "host code", "compute"]


def test_the_loader_is_blamed_for_no_more_than_its_share() -> None:
    """What a batch was proven to gain weighs more than a wait that could gain less."""
    some = replace(RUN, wait_share=0.2, shares=Shares(data_wait=0.2, compute=0.7, other=0.1))
    said = diagnose(some).sentence
    assert "1.25x at most" in said
    assert "sets the rate" not in said
    assert "sets the rate" in diagnose(RUN).sentence
    faster = replace(some, units_per_s=100.0, effects=Effects(batch=8.0))
    small = diagnose(replace(some, effects=Effects(batch=1.0)), faster_batch=faster)
    assert small.name == "small batch"
    assert any("20%" in fact for fact in small.evidence)


def test_what_the_loader_did_alone_is_told_with_its_wait() -> None:
    alone = Ceilings(loader=(LoaderCeiling(workers=2, units_per_s=75.0),))
    detail = bounds(replace(RUN, ceilings=alone), cpus=2)[0].detail
    assert "1.5x" in detail
    assert "may use 2 CPUs" in detail


def test_the_slowest_rank_is_named() -> None:
    ranks = replace(RUN, ranks=2, rank_units_per_s=(30.0, 20.0))
    assert any("Rank 1" in said and "67%" in said for said in idle_reasons(ranks))
