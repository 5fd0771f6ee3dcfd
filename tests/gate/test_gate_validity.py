"""Evidence from the GPU and the CPUs discards whole pairs; what is normal discards none."""

import dataclasses
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from gate_examples import BUSY, pair, run

from advisor.executor.executor import Budget
from advisor.gate.config import GateProgram
from advisor.gate.runner import (
    LEFT_BYTES,
    GateMeasurement,
    gate_rule,
    left_in_memory,
    shared_memory_bytes,
)
from advisor.gate.schema import Arm, Inputs, RunEntry
from advisor.gate.verdict import (
    statement,
    too_many_discarded,
    why_again,
    why_discard,
    why_disturbed,
)
from advisor.model import Disturbance, MeasurePlan, Telemetry
from advisor.settings import Workload

CAP = "software power cap"
SLOWER = {"sm_clock_mhz": 1980 * 0.9}
HARMFUL = (
    "hardware slowdown", "software thermal slowdown", "hardware thermal slowdown", "power brake",
)  # fmt: skip
EVIDENCE = [
    ({}, None),
    *(({"event_reasons": ((each, 0.05),)}, each) for each in HARMFUL),
    *(({"event_reasons": ((each, 1.0),)}, None) for each in (CAP, "idle", "application clocks")),
    ({"event_reasons": (("power brake", 0.005),)}, None),  # a passing spike
    ({"sm_clock_mhz": 1980 * 0.985}, "SM clock"),
    ({"sm_clock_mhz": 1980 * 0.995}, None),
    ({**SLOWER, "event_reasons": ((CAP, 0.8),)}, None),  # at its power cap: really slower
    ({"sm_clock_spread_pct": 8.0}, "moved by 8 %"),
    ({"foreign_pids": 1}, "foreign"),
]
"""Readings that are not those of a clean run, and what they discard the pair for."""


def but(**facts: Any) -> Telemetry:
    return dataclasses.replace(BUSY, **facts)


@pytest.mark.parametrize(("facts", "why"), EVIDENCE)
def test_evidence_in_either_arm_discards_the_pair(facts, why) -> None:
    """What is normal under load discards nothing."""
    for arms in ((but(**facts), BUSY), (BUSY, but(**facts))):
        found = why_discard(*arms)
        assert (found is None) if why is None else (why in (found or ""))


BLIND = Telemetry(gaps=(("sm_clock_mhz", "NVML was refused."),))
QUIET = Disturbance(disturbed=False, others_cpus=0.0)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"gpu": BLIND, "on_gpu": True, "others": QUIET}, "unverified: NVML was refused."),
        ({"gpu": BLIND}, "unverified: the load of others"),
        ({"gpu": BLIND, "others": QUIET}, "verified"),  # a host without a card
        ({"gpu": BUSY}, "verified"),
        ({"gpu": but(busy_samples=12)}, "unverified: only 12 busy"),
        ({"gpu": but(busy_samples=0), "on_gpu": True}, "unverified: only 0 busy"),
        ({"gpu": but(busy_samples=0), "others": QUIET}, "verified"),  # a card left alone
        ({"gpu": but(busy_samples=None), "on_gpu": True}, "unverified: the driver does not say"),
    ],
)
def test_pairs_are_verified_by_card_or_cpus(facts, words) -> None:
    """Base is a quiet run without a card."""
    said = statement([pair(1, run("base", others=QUIET), run("head", **facts))])
    assert said.startswith(words)


@pytest.mark.parametrize(
    ("base", "head", "counts"),
    [(0.0, 0.1, True), (1.6, 1.8, True), (0.0, 1.6, False), (2.0, 1.0, False)],
)
def test_a_pair_counts_where_others_disturbed_both_arms_alike(base, head, *, counts) -> None:
    """A tenth of a CPU discards nothing; runs of another day need a quiet machine."""
    runs = {
        arm: run(arm, others=Disturbance(disturbed=cpus > 0, others_cpus=cpus))
        for arm, cpus in (("base", base), ("head", head))
    }
    assert (why_again(**runs) is None) is counts
    assert why_again(**runs, needs_quiet=True) is not None
    assert statement([pair(1, **runs)]).startswith("busy: others")


def test_time_that_the_hypervisor_gave_to_one_arm_discards_the_pair() -> None:
    stolen = Disturbance(disturbed=True, others_cpus=0.0, steal_share=0.2)
    assert "20%" in (why_again(run("base", others=stolen), run("head")) or "")


@pytest.mark.parametrize(
    ("pairs", "discarded", "too_many"), [(8, 2, False), (8, 3, True), (24, 6, False), (24, 7, True)]
)
def test_a_quarter_of_the_pairs_may_be_discarded(pairs, discarded, *, too_many) -> None:
    reasons = ["power brake"] * discarded + [None] * (pairs - discarded)
    made = [pair(n, run("base"), run("head"), why) for n, why in enumerate(reasons)]
    assert too_many_discarded(made) is too_many


def test_what_is_left_in_shared_memory_discards_a_pair() -> None:
    """Of many megabytes: the next run, maybe the other arm's, has less memory for its files."""
    space, size = os.statvfs("/dev/shm"), 4 * LEFT_BYTES
    if space.f_bavail * space.f_frsize < 2 * size:
        pytest.skip("shared memory is small here")
    before = shared_memory_bytes()
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        os.posix_fallocate(file.fileno(), 0, size)
        assert "MiB more than at the start" in (left_in_memory(before, shared_memory_bytes()) or "")
    assert left_in_memory(before, before + LEFT_BYTES) is None
    assert left_in_memory(before, 0) is None


class Leaves:
    """Stands for processes of both arms, of which the first leaves a file in shared memory."""

    def __init__(self, place: Path) -> None:
        self.arms, self.place = {"base": None}, place

    def run(self, program: GateProgram, arm: Arm, *_: object) -> RunEntry:
        with self.place.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 2 * LEFT_BYTES)
        return run(arm, {program.name: 1.0})


def test_a_pair_after_which_shared_memory_is_full_does_not_count() -> None:
    entry = Workload.model_construct(command="true", unit="unit")
    program = GateProgram(name="train", workload=entry, in_shell=True)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        measurement = GateMeasurement(
            processes=Leaves(Path(folder, "left")),  # type: ignore[arg-type]
            selected=(program,), inputs=Inputs(), rule=gate_rule(Inputs(), "ab"),
        )  # fmt: skip
        measurement.plans["train"] = MeasurePlan()
        measurement.budget = Budget(total_s=60, clock=time.monotonic, started=time.monotonic())
        measurement._measure_pair(program)
    (pair,) = measurement.programs["train"].pairs
    assert "MiB more than at the start" in (pair.discarded or "")


def test_of_those_that_others_on_the_cpus_disturbed_as_many_as_the_last_look_needs() -> None:
    busy = run("base", others=Disturbance(disturbed=True, others_cpus=1.0))
    one = pair(1, busy, run("head"), why_disturbed(busy, run("head")))
    assert not too_many_discarded([one] * 24)
    assert too_many_discarded([one] * 25)
