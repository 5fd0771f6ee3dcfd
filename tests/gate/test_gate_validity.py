"""Evidence from the GPU and the CPUs discards whole pairs; what is normal discards none."""

from __future__ import annotations

import pytest
from gate_examples import BUSY, pair, run

from advisor.gate.schema import GpuReadings, OthersEntry
from advisor.gate.validity import (
    statement,
    too_many_discarded,
    why_again,
    why_discard,
    why_disturbed,
)


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
QUIET = OthersEntry(disturbed=False, cpus=0.0)


def said_of(**facts: object) -> str:
    """The statement on a pair of which head has these facts and base is a quiet run without a
    card."""
    return statement([pair(1, run("base", others=QUIET), run("head", **facts))])


def test_without_readings_nothing_is_discarded_and_the_report_says_unverified() -> None:
    assert why_discard(BLIND, BLIND, BLIND) is None
    assert said_of(gpu=BLIND, on_gpu=True, others=QUIET) == "unverified: NVML was refused."
    assert said_of(gpu=BLIND).startswith("unverified: the load of others")


def test_a_host_without_a_card_is_verified_by_its_cpus() -> None:
    """There is no NVML to ask; what others took of the CPUs was measured, and it was nothing."""
    assert said_of(gpu=BLIND, others=QUIET) == "verified"


def test_what_others_took_is_named() -> None:
    """CPUs and names, or the hypervisor's part where no other process is to be seen."""
    names = {"make": 0.7, "cc1plus": 0.9, "sh": 0.01}
    held = OthersEntry(disturbed=True, cpus=1.62, names=names)
    stolen = OthersEntry(disturbed=True, cpus=0.0, steal_share=0.2)
    said = why_disturbed(run("base", others=held), run("head", others=stolen))
    assert said == (
        "others held 1.6 CPUs (cc1plus 0.9, make 0.7) during base and others held 0.0 CPUs, the "
        "hypervisor gave away 20 % of their time during head"
    )
    assert why_disturbed(run("base", others=QUIET), run("head")) is None


def test_clean_readings_are_verified_and_few_samples_are_not() -> None:
    assert statement([pair(1, run("base", gpu=BUSY), run("head", gpu=BUSY))]) == "verified"
    brief = but(busy_samples=12)
    said = statement([pair(1, run("base", gpu=BUSY), run("head", gpu=brief))])
    assert said.startswith("unverified: only 12 busy")


@pytest.mark.parametrize(
    ("base", "head", "counts"),
    [
        (0.0, 0.1, True),
        (1.6, 1.8, True),
        (0.0, 1.6, False),
        (2.0, 1.0, False),
    ],
)
def test_a_pair_counts_where_others_disturbed_both_arms_alike(base, head, *, counts: bool) -> None:
    """A tenth of a CPU discards nothing; runs of another day need a quiet machine."""
    runs = {
        arm: run(arm, others=OthersEntry(disturbed=cpus > 0, cpus=cpus))
        for arm, cpus in (("base", base), ("head", head))
    }
    assert (why_again(runs, None) is None) is counts
    assert why_again(runs, None, needs_quiet=True) is not None
    assert statement([pair(1, **runs)]).startswith("busy: others held")
    stolen = {"base": run("base", others=OthersEntry(disturbed=True, cpus=0.0, steal_share=0.2))}
    assert "gave away 20 %" in (why_again({**stolen, "head": run("head")}, None) or "")


@pytest.mark.parametrize(
    ("pairs", "discarded", "too_many"), [(8, 2, False), (8, 3, True), (24, 6, False), (24, 7, True)]
)
def test_a_quarter_of_the_pairs_may_be_discarded(pairs, discarded, *, too_many: bool) -> None:
    """Of those that others on the CPUs disturbed, as many as the last look needs."""
    made = [
        pair(n, run("base"), run("head"), "power brake" if n <= discarded else None)
        for n in range(1, pairs + 1)
    ]
    assert too_many_discarded(made) is too_many
    busy = run("base", others=OthersEntry(disturbed=True, cpus=1.0))
    by_others = [pair(n, busy, run("head"), why_disturbed(busy, run("head"))) for n in range(24)]
    assert not too_many_discarded(by_others)
    assert too_many_discarded([*by_others, by_others[0]])
