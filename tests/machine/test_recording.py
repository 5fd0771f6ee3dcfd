"""Summary of a window of samples, rule by rule."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from advisor.machine.readings import GpuProcess, GpuSample
from advisor.machine.recording import Recording, Sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.model import Telemetry

START = 1_000_000.0
BUSY = GpuSample(
    util_pct=100.0,
    mem_used_gib=10.0,
    power_w=300.0,
    sm_clock_mhz=1500.0,
    event_reasons=0,
)
IDLE = replace(BUSY, util_pct=0.0, sm_clock_mhz=210.0, event_reasons=0x1)


def record(
    gpu: Callable[[float], GpuSample], seconds: float = 4.0, begin: float = 0.0
) -> Recording:
    """Ten samples a second; `gpu` gets the seconds since START."""
    times = [begin + tick / 10 for tick in range(round((seconds - begin) * 10) + 1)]
    samples = [Sample(time=START + t, gpu=gpu(t)) for t in times]
    return Recording(samples=tuple(samples))


def summary(seen: Recording, begin: float = 0.0, end: float = 4.0) -> Telemetry:
    return seen.summary(START + begin, START + end)


def reason(telemetry: Telemetry, field: str) -> str | None:
    return dict(telemetry.gaps).get(field)


def test_only_samples_of_the_window_count() -> None:
    """Warm-up before it and clean-up after it are another state of the card."""
    seen = record(lambda t: BUSY if 1 <= t <= 3 else replace(BUSY, mem_used_gib=70.0))
    found = summary(seen, 1.0, 3.0)
    assert (found.busy_samples, found.gpu_mem_used_gib) == (21, 10.0)
    assert (found.event_reasons, reason(found, "event_reasons")) == ((), None)


def test_memory_is_the_highest_and_clocks_the_median() -> None:
    odd = replace(BUSY, mem_used_gib=33.0, sm_clock_mhz=300.0)
    found = summary(record(lambda t: odd if t == 2.0 else BUSY))
    assert (found.gpu_mem_used_gib, found.sm_clock_mhz) == (33.0, 1500.0)


def test_readings_that_look_back_skip_the_first_second() -> None:
    """Utilisation and power then still tell of the time before the window."""
    seen = record(lambda t: replace(BUSY, util_pct=0.0, power_w=50.0) if t < 1 else BUSY)
    found = summary(seen)
    assert (found.gpu_util_pct, found.power_w) == (100.0, 300.0)


def test_a_window_too_short_for_them_has_none_and_says_why() -> None:
    found = summary(record(lambda _: BUSY), 0.0, 0.8)
    assert (found.gpu_util_pct, found.power_w) == (None, None)
    assert "window of 0.8 s is no longer than the 1 s" in str(reason(found, "power_w"))
    assert found.sm_clock_mhz == 1500.0


def test_clocks_and_event_reasons_are_those_of_busy_samples() -> None:
    """Idle clocks mislead; a share of all samples would hide throttling behind idleness."""
    hot = replace(BUSY, event_reasons=0x60)
    states = {0.0: IDLE, 1.0: IDLE, 2.0: BUSY, 3.0: hot}
    found = summary(record(lambda t: states[min(float(int(t)), 3.0)]))
    assert found.sm_clock_mhz == 1500.0
    assert found.busy_samples == 21
    assert dict(found.event_reasons) == {
        "idle": pytest.approx(20 / 41),
        "software thermal slowdown": pytest.approx(11 / 21),
        "hardware thermal slowdown": pytest.approx(11 / 21),
    }


def test_without_utilisation_the_idle_bit_tells_busy_samples() -> None:
    hidden = replace(BUSY, util_pct=None)
    found = summary(record(lambda t: replace(hidden, event_reasons=int(t < 2))))
    assert found.busy_samples == 21


def test_without_either_every_sample_counts_and_business_is_unknown() -> None:
    found = summary(record(lambda _: replace(BUSY, util_pct=None, event_reasons=None)))
    assert (found.busy_samples, found.sm_clock_mhz) == (None, 1500.0)
    assert found.event_reasons == ()
    assert reason(found, "event_reasons") is not None


def test_an_idle_card_has_no_clock_under_load() -> None:
    found = summary(record(lambda _: IDLE))
    assert (found.busy_samples, found.sm_clock_mhz, found.sm_clock_spread_pct) == (0, None, None)
    assert reason(found, "sm_clock_mhz") == "the GPU was idle through the window"
    assert dict(found.event_reasons) == {"idle": 1.0}


def test_clock_spread_is_that_of_the_middle_samples() -> None:
    """One odd sample in forty is no spread; a clock that sags half the time is."""
    steady = record(lambda t: replace(BUSY, sm_clock_mhz=300.0) if t == 2.0 else BUSY)
    sagging = record(lambda t: replace(BUSY, sm_clock_mhz=1350.0) if t > 2.0 else BUSY)
    assert summary(steady).sm_clock_spread_pct == 0.0
    assert summary(sagging).sm_clock_spread_pct == pytest.approx(10.0)


# --- counters -----------------------------------------------------------------------------


def test_energy_is_the_growth_of_its_counter_over_the_window() -> None:
    """Between samples by straight lines, whatever the counter stood at."""
    seen = record(lambda t: replace(BUSY, energy_j=1e9 + 250 * t))
    assert summary(seen, 0.55, 3.05).energy_j == pytest.approx(250 * 2.5)


def test_energy_of_a_window_not_wholly_sampled_is_scaled_or_refused() -> None:
    seen = record(lambda t: replace(BUSY, energy_j=250 * t), begin=0.3)
    assert summary(seen).energy_j == pytest.approx(1000.0)
    late = summary(record(lambda t: replace(BUSY, energy_j=250 * t), begin=1.0))
    assert late.energy_j is None
    assert reason(late, "energy_j") == "samples span only 75% of the window"


def test_energy_needs_two_seconds() -> None:
    """The counter ticks about ten times a second."""
    seen = record(lambda t: replace(BUSY, energy_j=250 * t))
    found = summary(seen, 0.0, 1.9)
    assert found.energy_j is None
    assert "too short for the energy counter" in str(reason(found, "energy_j"))


def test_a_counter_that_ran_backwards_is_not_believed() -> None:
    """The driver was reloaded meanwhile."""
    found = summary(record(lambda t: replace(BUSY, energy_j=9e9 if t < 2 else 250 * t)))
    assert found.energy_j is None
    assert reason(found, "energy_j") == "its counter ran backwards inside the window"


# --- processes ----------------------------------------------------------------------------


def crowd(
    *pids: int,
    own: tuple[int, ...] = (),
    hidden: tuple[int, ...] = (),
    times: int = 5,
    gpu: GpuSample = BUSY,
    working: tuple[int, ...] | None = None,
) -> Recording:
    """`pids` on the card in the first `times` of five listings, a second apart; all at work."""
    working = pids if working is None else working
    here = tuple(GpuProcess(pid=pid, memory_gib=None) for pid in pids)
    samples = [
        Sample(
            time=START + tick,
            gpu=replace(gpu, processes=here if tick < times else (), working_pids=working),
            own_pids=own if tick < times else (),
            hidden_pids=hidden if tick < times else (),
        )
        for tick in range(5)
    ]
    return Recording(samples=tuple(samples))


@pytest.mark.parametrize(
    ("seen", "foreign"),
    [
        (crowd(gpu=IDLE), 0),
        (crowd(10, 11, own=(10, 11)), 0),
        (crowd(10, 99, own=(10,)), 1),
        (crowd(99, 98), 2),
        (crowd(10, 7000, own=(10,), hidden=(7000,)), 1),
        (crowd(10, 7000, own=(10,), hidden=(7000,), times=1), 0),
        (crowd(99, times=1), 1),
        (crowd(10, 99, own=(10,), working=(10,)), 0),
        (crowd(10, 99, own=(10,), working=(10, 99)), 1),
        (crowd(10, 99, own=(10,), gpu=replace(BUSY, util_pct=0.0), working=()), 0),
    ],
    ids=[
        "nobody",
        "only ours",
        "a stranger",
        "strangers before us",
        "one of another container",
        "one that ended between listing and look",
        "a stranger who passed by",
        "one that holds memory and does nothing",
        "one that works",
        "an idle context beside ours",
    ],
)
def test_strangers_on_the_card_are_counted_once_each(seen: Recording, foreign: int) -> None:
    assert summary(seen).foreign_pids == foreign


def test_an_idle_context_is_no_neighbour_at_work() -> None:
    """A notebook holds memory; where the driver does not say who works, nothing is known."""
    found = summary(crowd(10, 99, own=(10,), working=()))
    assert found.foreign_pids is None
    assert "does not say which process ran kernels" in str(reason(found, "foreign_pids"))


def test_a_listing_in_another_namespace_tells_nothing() -> None:
    """In a container an older driver gives host ids: ours are among them, unrecognised."""
    found = summary(crowd(7000, 7001, hidden=(7000, 7001)))
    assert found.foreign_pids is None
    assert "2 process ids of another namespace" in str(reason(found, "foreign_pids"))


def test_a_driver_that_lists_nobody_on_a_working_card_tells_nothing() -> None:
    """As under WSL2: no strangers were seen, but neither were we."""
    found = summary(crowd())
    assert found.foreign_pids is None
    assert "at work but the driver lists no process" in str(reason(found, "foreign_pids"))


# --- nothing to read ----------------------------------------------------------------------


def test_without_a_gpu_every_gpu_field_has_that_reason() -> None:
    found = summary(Recording(samples=(), no_gpu="No NVIDIA driver."))
    assert found.gpu_util_pct is None
    assert set(dict(found.gaps).values()) == {"No NVIDIA driver."}
    assert len(found.gaps) == 7


def test_a_withheld_reading_has_its_own_reason() -> None:
    """And readings that came have none, though the card withheld them for a moment."""
    gaps = (("energy_j", "not supported"), ("power_w", "NVML error"), ("processes", "denied"))
    seen = replace(record(lambda _: BUSY), gaps=gaps)
    found = summary(seen)
    assert reason(found, "energy_j") == "not supported"
    assert reason(found, "foreign_pids") == "denied"
    assert reason(found, "power_w") is None


def test_a_window_without_samples_is_all_gaps() -> None:
    """A recording without samples too."""
    found = summary(record(lambda _: BUSY), 100.0, 103.0)
    assert (found.gpu_util_pct, found.busy_samples) == (None, None)
    assert reason(found, "gpu_util_pct") == "no sample fell into the window"
    empty = summary(Recording(samples=()))
    assert reason(empty, "energy_j") == "no sample fell into the window"
