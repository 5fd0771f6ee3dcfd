"""Evidence from the GPU and the CPUs discards whole pairs; what is normal discards none."""

from __future__ import annotations

import pytest
from gate_examples import BUSY, pair, run

from advisor.gate.schema import DisturbanceEntry, GpuReadings, NeighbourEntry
from advisor.gate.validity import statement, too_many, why_discard, why_disturbed


def but(**facts: object) -> GpuReadings:
    return BUSY.model_copy(update=facts)


CAP = "software power cap"
SLOWER = {"sm_clock_mhz": 1980 * 0.9}
EVIDENCE = [
    ({}, None),
    ({"event_reasons": {"hardware slowdown": 0.05}}, "hardware slowdown"),
    ({"event_reasons": {"software thermal slowdown": 0.05}}, "software thermal slowdown"),
    ({"event_reasons": {"hardware thermal slowdown": 0.05}}, "hardware thermal slowdown"),
    ({"event_reasons": {"power brake": 0.05}}, "power brake"),
    *(({"event_reasons": {each: 1.0}}, None) for each in (CAP, "idle", "application clocks")),
    ({"event_reasons": {"power brake": 0.005}}, None),  # a passing spike
    ({"sm_clock_mhz": 1980 * 0.985}, "SM clock"),
    ({"sm_clock_mhz": 1980 * 0.995}, None),
    ({**SLOWER, "event_reasons": {CAP: 0.8}}, None),  # at its power cap: really slower
    ({"sm_clock_spread_pct": 8.0}, "moved by 8 %"),
    ({"foreign_pids": 1}, "foreign"),
    ({"uuid": "GPU-2"}, "uuid"),
    ({"driver": "570"}, "driver"),
    ({"power_limit_w": 500.0}, "power_limit_w"),
    ({"name": "NVIDIA H100 PCIe"}, "name"),
]
"""Readings that are not those of a clean run, and what they discard the pair for."""


@pytest.mark.parametrize("arm", ["base", "head"])
@pytest.mark.parametrize(("facts", "why"), EVIDENCE)
def test_evidence_in_either_arm_discards_the_pair(
    arm: str, facts: dict[str, object], why: str | None
) -> None:
    """What is normal under load discards nothing."""
    base, head = (but(**facts) if each == arm else BUSY for each in ("base", "head"))
    found = why_discard(base, head, BUSY)
    assert (found is None) if why is None else (why in (found or ""))


BLIND = GpuReadings(gaps={"sm_clock_mhz": "NVML was refused."})
QUIET = DisturbanceEntry(disturbed=False, others_cpus=0.0)


def said_of(**facts: object) -> str:
    """The statement on a pair of which head has these facts and base is a quiet run without a
    card."""
    return statement([pair(1, run("base", disturbance=QUIET), run("head", **facts))])


def test_without_readings_nothing_is_discarded_and_the_report_says_unverified() -> None:
    assert why_discard(BLIND, BLIND, BLIND) is None
    cuda = {"device": "cuda:0"}
    assert said_of(gpu=BLIND, effects=cuda, disturbance=QUIET) == "unverified: NVML was refused."
    assert said_of(gpu=BLIND).startswith("unverified: it cannot be told whether others")


def test_a_host_without_a_card_is_verified_by_its_cpus() -> None:
    """There is no NVML to ask; what others took of the CPUs was measured, and it was nothing."""
    assert said_of(gpu=BLIND, disturbance=QUIET) == "verified"


def test_what_others_took_is_named() -> None:
    """CPUs and names, or the hypervisor's part where no other process is to be seen."""
    who = [NeighbourEntry(name="make", cpus=0.7), NeighbourEntry(name="cc1plus", cpus=0.9)]
    held = DisturbanceEntry(disturbed=True, others_cpus=1.62, who=who)
    stolen = DisturbanceEntry(disturbed=True, others_cpus=0.0, steal_share=0.2)
    said = why_disturbed(run("base", disturbance=held), run("head", disturbance=stolen))
    assert said == (
        "others held 1.6 CPUs (cc1plus 0.9, make 0.7) during base and others held 0.0 CPUs, the "
        "hypervisor gave away 20 % of their time during head"
    )
    assert why_disturbed(run("base", disturbance=QUIET), run("head")) is None


def test_clean_readings_are_verified_and_few_samples_are_not() -> None:
    assert statement([pair(1, run("base", gpu=BUSY), run("head", gpu=BUSY))]) == "verified"
    brief = but(busy_samples=12)
    said = statement([pair(1, run("base", gpu=BUSY), run("head", gpu=brief))])
    assert said.startswith("unverified: only 12 busy")


def test_a_quarter_of_the_pairs_may_be_discarded() -> None:
    assert not too_many(2, 8, 6)
    assert too_many(3, 8, 6)
    assert not too_many(6, 24, 6)
    assert too_many(7, 24, 6)
