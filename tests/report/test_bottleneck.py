"""Bounds are arithmetic on equal runs: no part gives more than its time; one run tells nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.machine import profiles
from advisor.model import (
    Ceilings,
    Effects,
    Flops,
    Footprint,
    Interval,
    LoaderCeiling,
    Run,
    Shares,
    Stage,
    Telemetry,
)
from advisor.report import amdahl
from advisor.report.amdahl import bounds, measured_parts
from advisor.report.bottleneck import LargerBatch, diagnose, typical
from tests.runs import a_run

RUN = a_run(
    unit="tile",
    units_per_s=50.0,
    wait_share=0.6,
    shares=Shares(data_wait=0.6, compute=0.3, other=0.1),
    effects=Effects(workers=0, device="cpu"),
)


def by_title(*runs: Run) -> dict[str, float | None]:
    """Estimates of two equal runs, or of those given."""
    both = runs if len(runs) > 1 else (*runs, *runs)
    return {b.title: b.at_most.estimate if b.at_most else None for b in bounds(both, cpus=2)}


def named(run: Run, **more: object) -> str:
    """The bottleneck of two equal runs."""
    found = diagnose([run, run], **more)  # type: ignore[arg-type]
    assert found is not None
    return found.name


def test_one_run_tells_nothing() -> None:
    """No ratio, ceiling or cause is named from one draw."""
    assert diagnose([RUN]) is None
    assert diagnose([]) is None
    assert bounds([RUN]) == ()
    assert bounds([]) == ()


def test_each_figure_carries_its_range_and_the_number_of_runs() -> None:
    """Two runs that wait 50 % and 60 %: at most 2.0x to 2.5x."""
    other = replace(
        RUN, wait_share=0.5, shares=Shares(data_wait=0.5, compute=0.4, other=0.1), units_per_s=60.0
    )
    first = bounds([RUN, other])[0]
    assert first.at_most is not None
    assert (first.at_most.low, first.at_most.high, first.at_most.n) == pytest.approx((2.0, 2.5, 2))
    found = diagnose([RUN, other])
    assert found is not None
    assert "(50 % to 60 %, 2 runs)" in found.sentence
    assert "55.0 (50.0 to 60.0, 2 runs) tiles/s" in found.sentence


def test_a_ceiling_that_was_measured_once_is_not_told() -> None:
    """The loader alone ran in one of the two processes only."""
    alone = replace(RUN, ceilings=Ceilings(compute_units_per_s=70.0))
    found = diagnose([alone, RUN])
    assert found is not None
    assert not any("bypassed" in line for line in found.evidence)
    both = diagnose([alone, alone])
    assert both is not None
    assert any("70.0 (70.0 to 70.0, 2 runs)" in line for line in both.evidence)


def test_what_is_slower_alone_than_the_whole_is_no_ceiling() -> None:
    """Both the model, and the loader as the program has it; with other workers it may be slower,
    and inside the range of the whole a part is told as it is."""
    parts = (LoaderCeiling(workers=0, units_per_s=42.0), LoaderCeiling(workers=2, units_per_s=41.0))
    alone = replace(RUN, ceilings=Ceilings(compute_units_per_s=43.0, loader=parts))
    ceilings = typical([alone, alone]).ceilings
    assert ceilings == Ceilings(loader=parts[1:])
    found = diagnose([alone, alone])
    assert found is not None
    said = [line for line in found.evidence if "no ceiling of its own" in line]
    assert ["43.0" in said[0], "42.0" in said[1]] == [True, True]
    noisy = replace(alone, units_per_s=40.0)
    assert typical([alone, noisy]).ceilings == alone.ceilings
    found = diagnose([alone, noisy])
    assert found is not None
    assert not any("no ceiling of its own" in line for line in found.evidence)


def test_each_part_gives_at_most_what_it_takes_and_the_largest_stands_first() -> None:
    """1 / (1 - share); compute twice as fast."""
    assert list(by_title(RUN).values()) == pytest.approx([1 / 0.4, 1 / 0.85, 1 / 0.9])
    assert bounds([RUN, RUN])[0].title == "Feed the data faster"


def test_parts_not_measured_bound_nothing() -> None:
    """None is not nought."""
    unknown = replace(RUN, shares=Shares(), wait_share=None)
    assert bounds([unknown, unknown]) == ()
    assert measured_parts(unknown.shares) == {}


def test_a_part_that_takes_all_the_time_has_no_bound() -> None:
    """A whole without rest has no bound."""
    stuck = replace(RUN, shares=Shares(data_wait=1.0, compute=0.0, other=0.0))
    assert by_title(stuck) == {"Feed the data faster": None}


def test_half_the_sampling_steps_save_half_of_what_is_not_waiting() -> None:
    """Cost is linear in the steps; waiting for data is not."""
    sampler = replace(RUN, effects=replace(RUN.effects, forwards_per_unit=100.0))
    assert by_title(sampler)["Take fewer sampling steps"] == pytest.approx(1 / 0.8)


def test_on_a_gpu_the_host_may_wait_for_the_model_outside_its_calls() -> None:
    """Its calls return at once; what they started is waited for at some `.item()` later."""
    gpu = replace(RUN, effects=Effects(device="cuda:0"), telemetry=Telemetry(gpu_util_pct=95.0))
    assert by_title(gpu)["Make the compute faster"] == pytest.approx(1 / 0.8)
    quick = replace(gpu, wait_share=0.0, shares=Shares(data_wait=0.0, compute=0.2, other=0.8))
    assert named(quick) == "compute"
    idle = replace(quick, telemetry=Telemetry(gpu_util_pct=20.0))
    assert named(idle) == "host code"


def test_a_gpu_that_idles_most_of_the_time_for_many_reasons_is_not_said_to_compute() -> None:
    """None of the parts is large, and together they are most of it: the largest is named. Half of
    that, and what is left is compute. A card that did nothing at all is no card that tells nothing.
    """
    each = {"data_wait": 0.13, "host_to_device": 0.13, "sync": 0.13, "other": 0.13}
    parts = Shares(compute=0.34, launch=0.14, **each)
    assert named(replace(RUN, wait_share=0.13, shares=parts)) == "launch"
    half = Shares(compute=0.67, launch=0.07, **{name: share / 2 for name, share in each.items()})
    assert named(replace(RUN, wait_share=0.065, shares=half)) == "compute"
    host = replace(RUN, wait_share=0.0, shares=Shares(data_wait=0.0, compute=0.2, other=0.8))
    idle = replace(host, effects=Effects(device="cuda:0"), telemetry=Telemetry(gpu_util_pct=0.0))
    assert named(idle) == "host code"
    assert named(replace(idle, telemetry=Telemetry())) == "compute"


def test_two_different_bottlenecks_give_two_different_sentences() -> None:
    """By where the time goes."""
    slow_loop = replace(
        RUN, wait_share=0.02, shares=Shares(data_wait=0.02, compute=0.1, other=0.88)
    )
    compute = replace(RUN, wait_share=0.02, shares=Shares(data_wait=0.02, compute=0.9, other=0.08))
    assert [named(run) for run in (RUN, slow_loop, compute)] == ["data", "host code", "compute"]


def test_the_loader_is_blamed_for_no_more_than_its_share() -> None:
    """A proven gain of a batch weighs more than a wait that could gain less."""
    some = replace(RUN, wait_share=0.2, shares=Shares(data_wait=0.2, compute=0.7, other=0.1))
    told = diagnose([some, some])
    most = diagnose([RUN, RUN])
    assert told is not None
    assert most is not None
    assert "gives back that at most" in told.sentence
    assert "sets the rate" not in told.sentence
    assert "sets the rate" in most.sentence
    proven = LargerBatch(batch=8.0, gain=Interval(estimate=2.0, low=1.9, high=2.1, n=6))
    one = replace(some, effects=Effects(batch=1.0))
    small = diagnose([one, one], larger_batch=proven)
    assert small is not None
    assert small.name == "small batch"
    assert "2.00x (1.90 to 2.10)" in small.sentence
    assert any("20 %" in fact for fact in small.evidence)


def test_what_the_loader_did_alone_is_told_with_its_wait() -> None:
    """75 tiles/s alone where the whole did 50."""
    run = replace(RUN, ceilings=Ceilings(loader=(LoaderCeiling(workers=2, units_per_s=75.0),)))
    detail = bounds([run, run], cpus=2)[0].detail
    assert "it alone did 75.0 tiles/s where the whole did 50.0" in detail
    assert "may use 2 CPUs" in detail


def test_the_slowest_rank_is_named() -> None:
    """With its share of the fastest one's rate."""
    several = replace(RUN, ranks=2, rank_units_per_s=(30.0, 20.0))
    ranks = replace(several, effects=Effects(group_size=2))
    for run, name in ((ranks, "Rank"), (several, "Process")):
        found = diagnose([run, run])
        assert found is not None
        assert f"{name} 1 is the slowest: 67% of the fastest one's rate." in found.evidence


def test_a_gpu_that_nvml_says_nothing_of_is_one() -> None:
    """A window too short for it, or no NVML in the container: the program was on a card."""
    blind = replace(RUN, telemetry=Telemetry(cpu_util_pct=80.0))
    for device, told in (("cpu", True), ("cuda:0", False)):
        run = replace(blind, effects=replace(RUN.effects, device=device))
        found = diagnose([run, run])
        assert found is not None
        assert any("there is no GPU" in line for line in found.evidence) is told


def test_the_operations_that_were_counted_stand_beside_the_cards_rate() -> None:
    """Over the datasheet's rate at the dtype in use; a least figure where some were not seen."""
    on_card = replace(RUN.effects, device="cuda:0", dtype="bfloat16")
    flops = Flops(per_step=989e9, uncounted=("mine.op",))
    run = replace(RUN, step_ms=10.0, effects=on_card, flops=flops)
    found = diagnose([run, run], profile=profiles.by_name("h100-sxm"))
    assert found is not None
    (line,) = (line for line in found.evidence if "TFLOP/s" in line)
    assert "at least 98.9 TFLOP/s" in line
    assert "10.00% of the 989" in line.replace(" %", "%")
    assert "mine.op could not be counted" in line
    why = replace(run, flops=Flops(why="compiled code does not show its operations"))
    found = diagnose([why, why])
    assert found is not None
    assert any("not measured: compiled code" in line for line in found.evidence)


def test_what_the_allocator_holds_is_what_the_card_must_give() -> None:
    """Tensors are the smaller figure: freed blocks stay reserved. On a host it is the one there
    is."""
    assert replace(RUN, peak_mem_gib=8.0, peak_device_gib=23.0).held_gib == 23.0
    assert replace(RUN, peak_mem_gib=8.0).held_gib == 8.0


def test_compute_is_never_bounded_by_its_absence() -> None:
    """A model that takes 96 % of the time is not told to be 25 times as fast at most."""
    run = replace(RUN, wait_share=0.0, shares=Shares(data_wait=0.0, compute=0.96, other=0.04))
    assert by_title(run)["Make the compute faster"] == pytest.approx(1 / (1 - 0.48))
    (compute,) = (b for b in bounds([run, run]) if b.title == "Make the compute faster")
    assert "twice as fast" in compute.detail


@pytest.mark.parametrize(
    ("fields", "ranks", "told"),
    [
        (Effects(batch=8), 1, "for a batch of 8."),
        (Effects(batch=8, accumulation=4), 1, "for 4 batches of 8."),
        (
            Effects(batch=8, accumulation=4, group_size=2),
            2,
            "for 4 batches of 8 on each of 2 ranks.",
        ),
        (Effects(batch=8, group_size=1), 2, "for a batch of 8 on each of 2 processes."),
        (Effects(), 1, "took 12.0 ms."),
    ],
)
def test_the_time_of_a_step_says_what_it_goes_through(
    fields: Effects, ranks: int, told: str
) -> None:
    """An update of accumulated batches is not told as one batch, nor a rank's batch as all."""
    run = replace(RUN, effects=fields, ranks=ranks, step_ms=12.0, step_kind="optimizer step")
    found = diagnose([run, run])
    assert found is not None
    assert any(line.endswith(told) for line in found.evidence), found.evidence


def test_each_of_several_networks_is_bounded_by_its_share() -> None:
    """1 / (1 - 0.8): the rate where it took no time."""
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
    assert not bounds([run, a_run(stages=(run.stages[0],))])


def test_each_part_of_a_steps_memory_has_its_size_and_share() -> None:
    mib = 1024**2
    held = Footprint(model=mib, gradients=0, optimizer=2 * mib, activations=4 * mib, workspace=mib)
    lines = amdahl.footprint_lines(replace(RUN, footprint=held))
    assert len(lines) == 5
    assert "4.00 MiB  activations (50 %" in lines[3]
    assert amdahl.footprint_lines(RUN) == []
