"""Bottlenecks and bounds are arithmetic on equal runs; one run tells nothing."""

from dataclasses import replace
from typing import Any

import pytest

from advisor.commands import profile
from advisor.machine import profiles
from advisor.model import (
    Disturbance,
    Effects,
    Flops,
    Footprint,
    LoaderCeiling,
    Machine,
    NetworkStage,
    Run,
    Shares,
    SyncPoint,
    Telemetry,
)
from advisor.report import verdict
from advisor.report.bottleneck import diagnose, footprint_lines, networks, parts_of_time
from advisor.report.schema import Bottleneck
from tests.runs import a_run
from tests.support.simulator.engine import QUIET_MACHINE

RUN = a_run(
    unit="tile",
    units_per_s=50.0,
    wait_share=0.6,
    shares=Shares(data_wait=0.6, compute=0.3, other=0.1),
    effects=Effects(workers=0, device="cpu"),
)
QUICK = replace(RUN, wait_share=0.02)
ON_GPU = replace(
    RUN, wait_share=0.0, effects=Effects(device="cuda:0"), telemetry=Telemetry(gpu_util_pct=95.0)
)


BUSY = {"compute": 0.9, "other": 0.1}


def at_util(util_pct: float | None) -> Run:
    """A run on a card with that utilisation."""
    return replace(ON_GPU, telemetry=Telemetry(gpu_util_pct=util_pct))


def found(*runs: Run) -> Bottleneck:
    """Diagnosis of two equal runs, or of those given."""
    diagnosis = diagnose(runs if len(runs) > 1 else (*runs, *runs))
    assert diagnosis is not None
    return diagnosis


def test_one_run_tells_nothing() -> None:
    assert diagnose([RUN]) is None


def test_a_figure_is_the_range_of_equal_runs() -> None:
    shares = Shares(data_wait=0.5, compute=0.4, other=0.1)
    other = replace(RUN, wait_share=0.5, shares=shares, units_per_s=60.0)
    sentence = found(RUN, other).sentence
    assert "takes 50 % to 60 % of the time, at 50.0 to 60.0 tiles/s in 2 runs" in sentence
    assert "more loader workers" in sentence


@pytest.mark.parametrize(
    ("alone", "on_gpu", "advice"),
    [
        ({0: 90.0, 2: 60.0, 4: 60.0}, False, "fewer loader workers, faster"),
        ({0: 90.0, 1: 80.0, 2: 60.0, 4: 60.0}, True, "fewer loader workers, faster"),
        ({0: 70.0, 2: 60.0, 4: 60.0}, True, "Shorter by faster transforms or storage."),
        ({0: 70.0, 2: 60.0, 4: 60.0}, False, "Shorter by faster transforms or storage."),
        ({0: 40.0, 2: 60.0, 4: 110.0}, False, "more loader workers"),
        ({0: 40.0, 2: 60.0, 4: 62.0}, False, "Shorter by faster transforms or storage."),
        ({0: 40.0, 2: 60.0}, False, "more loader workers"),
        ({0: 40.0, 1: 58.0}, False, "more loader workers"),
        ({0: 40.0, 1: 58.0, 2: 60.0}, False, "Shorter by faster transforms or storage."),
        ({}, False, "more loader workers"),
    ],
)
def test_workers_are_advised_by_what_the_loader_alone_did(alone, on_gpu, advice) -> None:
    """More of them were named where the loader alone was fastest without any."""
    ceilings = tuple(
        LoaderCeiling(workers=workers, units_per_s=rate) for workers, rate in alone.items()
    )
    device = "cuda:0" if on_gpu else "cpu"
    shares = Shares(data_wait=0.6, compute=0.4)
    effects = Effects(workers=2, device=device)
    run = replace(RUN, ceilings=ceilings, shares=shares, effects=effects)
    assert advice in found(run).sentence
    assert advice.removeprefix("Shorter by ").rstrip(".") in "".join(parts_of_time([run, run]))


IDLE = dict.fromkeys(("data_wait", "host_to_device", "sync", "other"), 0.13)


@pytest.mark.parametrize(
    ("run", "shares", "name"),
    [
        (RUN, {"data_wait": 0.6, "compute": 0.3, "other": 0.1}, "data_wait"),
        (QUICK, {"data_wait": 0.02, "compute": 0.1, "other": 0.88}, "other"),
        (QUICK, {"data_wait": 0.02, "compute": 0.9, "other": 0.08}, "compute"),
        (replace(RUN, wait_share=None), {}, "unknown"),
        (replace(QUICK, effects=Effects(forwards_per_unit=100.0)), BUSY, "sampling steps"),
        # the host may wait for a card that works: calls return at once
        (ON_GPU, {"data_wait": 0.0, "compute": 0.2, "other": 0.8}, "compute"),
        (at_util(None), {"data_wait": 0.0, "compute": 0.2, "other": 0.8}, "compute"),
        (at_util(20.0), {"data_wait": 0.0, "compute": 0.2, "other": 0.8}, "other"),
        # a card that has nothing to do most of the time, for many reasons
        (ON_GPU, IDLE | {"compute": 0.34, "launch": 0.14}, "launch"),
        (ON_GPU, IDLE | {"sync": 0.0, "other": 0.0, "compute": 0.67, "launch": 0.07}, "compute"),
    ],
)
def test_what_sets_the_rate_is_named(run, shares, name) -> None:
    assert found(replace(run, shares=Shares(**shares))).name == name


def test_waiting_that_is_not_the_largest_part_comes_second() -> None:
    shares = Shares(data_wait=0.2, compute=0.73, other=0.07)
    found_ = found(replace(RUN, wait_share=0.2, shares=shares))
    assert found_.name == "compute"
    assert found_.sentence.startswith("Compute takes 73 % of the time")
    assert "Waiting for data takes another 20 %, shorter by more loader workers" in found_.sentence


def test_the_largest_part_of_the_time_stands_first() -> None:
    shares = Shares(data_wait=0.2, compute=0.73, other=0.07)
    lines = parts_of_time([replace(RUN, shares=shares)] * 2)
    assert [line.split()[2] for line in lines] == ["compute:", "waiting", "host"]


@pytest.mark.parametrize("part", ["launch", "sync", "other", "host_to_device", "data_wait"])
def test_no_sentence_contradicts_the_utilisation_that_nvidia_smi_shows(part) -> None:
    """Work counted by events is a least figure, and no share is called idle."""
    shares = {"launch": 0.0, "compute": 0.2, "other": 0.1} | {part: 0.7}
    diagnosis = found(replace(at_util(74.0), shares=Shares(**shares)))
    assert "The GPU computed during at least 20 %." in diagnosis.sentence
    assert "NVML saw it at work in 74 %." in diagnosis.sentence
    for line in (diagnosis.sentence, *diagnosis.evidence):
        assert "idle" not in line
        assert "nothing to do" not in line


def test_the_loader_alone_is_told_if_every_run_had_it_faster_than_the_whole() -> None:
    parts = (LoaderCeiling(workers=0, units_per_s=42.0), LoaderCeiling(workers=2, units_per_s=61.0))
    alone = replace(RUN, ceilings=parts)
    lines = [line for line in found(alone).evidence if "alone" in line]
    assert lines == ["The loader alone, with 2 workers, did 61.0 tiles/s."]
    assert not any("alone" in line for line in found(alone, RUN).evidence)
    rates = (107.0, 1150.0)
    parts = (replace(RUN, ceilings=(LoaderCeiling(workers=2, units_per_s=rate),)) for rate in rates)
    lines = [line for line in found(*parts).evidence if "alone" in line]
    assert lines == ["The loader alone, with 2 workers, did 107 to 1,150 tiles/s."], "no mean"


def test_the_slowest_rank_is_named() -> None:
    several = replace(RUN, ranks=2, rank_units_per_s=(30.0, 20.0))
    ranks = replace(several, effects=Effects(group_size=2))
    for run, name in ((ranks, "Rank"), (several, "Process")):
        least = f"{name} 1 does the least work: 67% of the rate of the one that does most."
        assert least in found(run).evidence


def test_memory_of_ranks_is_told_where_it_differs() -> None:
    uneven = replace(RUN, ranks=2, rank_mem_gib=(3.0, 9.0))
    assert "Peak memory by rank: 3.0 GiB, 9.0 GiB." in found(uneven).evidence
    even = replace(RUN, ranks=2, rank_mem_gib=(9.0, 9.0))
    assert "by rank" not in " ".join(found(even).evidence)


@pytest.mark.parametrize(
    ("effects", "ranks", "beside"),
    [
        (Effects(batch=8, accumulation=4, group_size=2), 2, " (batch 8, accumulation 4, 2 ranks)"),
        (Effects(batch=8, group_size=1), 2, " (batch 8, 2 processes)"),
        (Effects(), 1, ""),
    ],
)
def test_the_time_of_a_step_has_its_batches(effects, ranks, beside) -> None:
    run = replace(RUN, effects=effects, ranks=ranks, step_ms=12.0, step_kind="optimizer step")
    assert f"One optimizer step took 12.0 ms{beside}." in found(run).evidence


def test_the_operations_that_were_counted_stand_beside_the_cards_rate() -> None:
    """A least figure, and nothing of a CPU."""
    on_card = replace(RUN.effects, device="cuda:0", dtype="bfloat16")
    run = replace(RUN, step_ms=10.0, effects=on_card, flops=Flops(per_step=989e9))
    diagnosis = diagnose([run, run], profile=profiles.by_name("h100-sxm"))
    (line,) = (line for line in diagnosis.evidence if "TFLOP/s" in line)
    assert "at least 98.9 TFLOP/s" in line
    assert "10 % of what NVIDIA H100" in line
    assert "(989 at bfloat16)" in line
    on_cpu = replace(run, effects=RUN.effects)
    assert not any("TFLOP/s" in line for line in found(on_cpu).evidence)


def achieved(*by_dtype: tuple[str, float], card: str = "h100-sxm") -> str:
    """The line on counted operations of a step of 10 ms."""
    on_card = replace(RUN.effects, device="cuda:0", dtype="float32", tf32=False)
    flops = Flops(per_step=sum(each for _, each in by_dtype), by_dtype=by_dtype)
    run = replace(RUN, step_ms=10.0, effects=on_card, flops=flops)
    lines = diagnose([run, run], profile=profiles.by_name(card)).evidence
    (line,) = (line for line in lines if line.startswith("Matrix products"))
    return line


@pytest.mark.parametrize(
    ("by_dtype", "card", "words"),
    [
        ((("tf32", 956e9),), "h100-sxm", "95.6 TFLOP/s, waits included: 19 % of what"),
        ((("tf32", 495e9), ("float32", 67e9)), "h100-sxm", "20 % of what"),
        ((("tf32", 495e9), ("float32", 67e9)), "h100-sxm", "(495 at tf32 and 67 at float32)"),
        ((("tf32", 81e9),), "t4", "at tf32"),
        ((("bfloat16", 1e9),), "h100-sxm", "less than 1 % of what"),
        ((("float64", 1e9),), "h100-sxm", "0.1 TFLOP/s, waits included."),
    ],
)
def test_operations_are_held_against_the_rate_of_their_own_dtype(by_dtype, card, words) -> None:
    """Convolutions run in TF32 by default, products of matrices do not; no share passes 1."""
    assert words in achieved(*by_dtype, card=card)


def test_lines_that_cost_nothing_are_no_evidence() -> None:
    """A wait of a thousandth of the time explains no rate."""
    points = (
        SyncPoint(site="train.py:83", call="item", per_step=1 / 13, ms=65.0),
        SyncPoint(site="train.py:90", call="cpu", per_step=0.05, ms=0.2),
    )
    text = " ".join(found(replace(RUN, syncs=points, step_ms=20.0)).evidence)
    assert "once in 13 steps" in text
    assert "train.py:90" not in text


def test_padding_suggests_buckets_and_reads_of_tensors_have_their_lines() -> None:
    point = SyncPoint(site="train.py:83", call="item", per_step=2.0, ms=1.0)
    effects = replace(RUN.effects, padding_share=0.25)
    told = found(replace(RUN, effects=effects, syncs=(point,), step_ms=20.0))
    assert "Padding fills 25.0 %" in told.sentence, "what pays most for text is not folded"
    assert "bucketing" in told.sentence
    shown = "`train.py:83` (`.item()`, 2 a step, 1.00 ms each, 10 % of the time)"
    assert f"The host waits for the GPU at {shown}." in told.evidence


def test_each_part_gives_at_most_what_it_takes() -> None:
    """1 / (1 - share); of compute, twice as fast, since none of it can be left out."""
    lines = parts_of_time([RUN, RUN])
    bounds = ("at most 2.50x without it", "at most 1.18x at twice", "at most 1.11x without it")
    assert [bound in line for bound, line in zip(bounds, lines, strict=True)] == [True] * 3
    stuck = replace(RUN, shares=Shares(data_wait=1.0))
    assert parts_of_time([stuck, stuck]) == ["  100 %  waiting for data"]


def test_networks_that_take_turns_and_parts_of_memory_have_a_line_each() -> None:
    stage = NetworkStage(name="Segmenter", site="s.py:3", share=0.8, calls_per_unit=2.0, batch=1)
    (line,) = networks(a_run(unit="image", stages=(stage,)))
    assert line.split("  ")[-1] == "Segmenter at s.py:3: 2.00 calls an image, 1 at once"
    mib = 1024**2
    held = Footprint(model=mib, gradients=mib, optimizer=2 * mib, activations=4 * mib)
    assert "4.00 MiB  activations (50 %" in footprint_lines(replace(RUN, footprint=held))[3]
    assert footprint_lines(RUN) == []


ALL = Effects(batch=8, accumulation=4, group_size=2, group_batch=16)


def memo(effects: Effects, ranks: int = 1, **more: Any) -> str:
    """The memo of two equal runs."""
    fields = {"step_kind": "optimizer step", "step_ms": 12.0} | more
    shares = Shares(compute=0.9, other=0.1)
    run = a_run(shares=shares, effects=effects, ranks=ranks, **fields)
    diagnosis = diagnose([run, run])
    return profile.memo((run, run), diagnosis)


@pytest.mark.parametrize(
    ("effects", "ranks", "words"),
    [
        (Effects(batch=8), 1, "batch 8, workers"),
        (Effects(batch=8, accumulation=4), 1, "batch 8, 32 an update, workers"),
        (ALL, 2, "batch 8 a rank, 64 an update, workers"),
        (Effects(batch=8, group_size=2, group_batch=24), 2, "batch 8 a rank, 24 an update"),
        (replace(ALL, group_size=1, group_batch=None), 2, "batch 8 a process, 32 an update"),
        (Effects(), 1, "batch not measured, workers"),
    ],
)
def test_a_batch_is_counted_by_rank_and_by_update(effects, ranks, words) -> None:
    assert words in memo(effects, ranks)


def test_readings_carry_their_units() -> None:
    seen = Telemetry(gpu_util_pct=97.0, gpu_mem_used_gib=12.0, power_w=650.0, sm_clock_mhz=1980.0)
    held = Footprint(model=1, gradients=1, optimizer=2, activations=4)
    text = memo(Effects(batch=8), telemetry=seen, step_ms=3360.0, footprint=held)
    for words in (
        "GPU 97 % busy",
        "12.0 GiB in use",
        "650 W",
        "SM clock 1,980 MHz",
        "step 3.36 s,",
    ):
        assert words in text
    assert "activations (50 %; grows with batch" in text


def test_the_cpus_to_request_are_those_that_the_wait_would_take() -> None:
    """Of an allocation whose CPUs are all busy; else nothing is asked for."""
    given = replace(QUIET_MACHINE, cpus=2, allocation="slurm")

    def said(machine: Machine = given, wait_share: float = 0.6, own_cpus: float = 1.95) -> str:
        seen = Disturbance(disturbed=False, own_cpus=own_cpus)
        run = replace(RUN, wait_share=wait_share, disturbance=seen)
        return verdict.more_cpus([run, run], machine)

    assert "Request `--cpus-per-task=5`: at most 2.50x" in said()
    assert said(replace(given, allocation=None)) == ""
    assert said(wait_share=0.05) == ""
    assert said(own_cpus=1.2) == ""
