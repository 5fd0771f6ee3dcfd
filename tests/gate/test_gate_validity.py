"""Evidence from the GPU and the CPUs discards whole pairs; what is normal discards none."""

from __future__ import annotations

import pytest
from gate_examples import BUSY, pair, run

from advisor.gate.schema import DisturbanceEntry, GpuReadings, NeighbourEntry
from advisor.gate.validity import statement, too_many, why_discard, why_disturbed


def but(**facts: object) -> GpuReadings:
    return BUSY.model_copy(update=facts)


HARMFUL = [
    "hardware slowdown",
    "software thermal slowdown",
    "hardware thermal slowdown",
    "power brake",
]


def test_two_clean_runs_count() -> None:
    assert why_discard(BUSY, BUSY, BUSY) is None


@pytest.mark.parametrize("reason", HARMFUL)
@pytest.mark.parametrize("arms", ["base", "head", "both"])
def test_throttling_in_either_arm_discards_the_pair(reason: str, arms: str) -> None:
    sick = but(event_reasons={reason: 0.05})
    base, head = (sick if arms in {arm, "both"} else BUSY for arm in ("base", "head"))
    assert reason in (why_discard(base, head, BUSY) or "")


@pytest.mark.parametrize("reason", ["software power cap", "idle", "application clocks"])
def test_what_is_normal_under_load_discards_nothing(reason: str) -> None:
    normal = but(event_reasons={reason: 1.0})
    assert why_discard(normal, normal, BUSY) is None


def test_a_passing_spike_is_no_reason() -> None:
    assert why_discard(but(event_reasons={"power brake": 0.005}), BUSY, BUSY) is None


def test_a_clock_offset_across_the_arms_discards_the_pair() -> None:
    assert "SM clock" in (why_discard(BUSY, but(sm_clock_mhz=1980 * 0.985), BUSY) or "")
    assert why_discard(BUSY, but(sm_clock_mhz=1980 * 0.995), BUSY) is None


def test_an_arm_at_its_power_cap_is_really_slower() -> None:
    capped = but(sm_clock_mhz=1980 * 0.9, event_reasons={"software power cap": 0.8})
    assert why_discard(BUSY, capped, BUSY) is None


def test_a_clock_that_moves_within_a_run_discards_the_pair() -> None:
    assert "moved by 8 %" in (why_discard(but(sm_clock_spread_pct=8.0), BUSY, BUSY) or "")


def test_foreign_processes_discard_the_pair() -> None:
    assert "foreign" in (why_discard(BUSY, but(foreign_pids=1), BUSY) or "")


@pytest.mark.parametrize(
    ("fact", "value"),
    [("uuid", "GPU-2"), ("driver", "570"), ("power_limit_w", 500.0), ("name", "NVIDIA H100 PCIe")],
)
def test_another_device_discards_the_pair(fact: str, value: object) -> None:
    assert fact in (why_discard(BUSY, but(**{fact: value}), BUSY) or "")


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
