"""Summary of a window of samples, rule by rule."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from advisor.machine.readings import GpuSample
from advisor.machine.recording import NOT_READ, UNNAMED, summed_up
from advisor.model import Telemetry

START = 1_000_000.0
BUSY = GpuSample(
    gpu_util_pct=100.0, gpu_mem_used_gib=10.0, power_w=300.0, sm_clock_mhz=1500.0, event_reasons=0
)
IDLE = replace(BUSY, gpu_util_pct=0.0, sm_clock_mhz=210.0, event_reasons=0x1)


def record(
    gpu: Callable[[float], GpuSample], seconds: float = 4.0, begin: float = 0.0
) -> list[GpuSample]:
    """Ten samples a second; `gpu` gets the seconds since START."""
    times = [begin + tick / 10 for tick in range(round((seconds - begin) * 10) + 1)]
    return [replace(gpu(t), time=START + t) for t in times]


def summary(seen: list[GpuSample], begin: float = 0.0, end: float = 4.0, **gaps: str) -> Telemetry:
    return summed_up(seen, gaps, START + begin, START + end)


def test_only_samples_of_the_window_count() -> None:
    """Memory is the highest, clocks the median; warm-up and clean-up are another state."""
    odd = replace(BUSY, gpu_mem_used_gib=33.0, sm_clock_mhz=300.0)
    outside = replace(BUSY, gpu_mem_used_gib=70.0)
    seen = record(lambda t: odd if t == 2.0 else BUSY if 1 <= t <= 3 else outside)
    found = summary(seen, 1.0, 3.0)
    assert found.busy_samples == 21
    assert found.gpu_mem_used_gib == 33.0
    assert found.sm_clock_mhz == 1500.0
    assert found.event_reasons == ()


def test_readings_that_look_back_skip_the_first_second() -> None:
    """Utilisation and power then still tell of the time before the window."""
    found = summary(
        record(lambda t: replace(BUSY, gpu_util_pct=0.0, power_w=50.0) if t < 1 else BUSY)
    )
    assert found.gpu_util_pct == 100.0
    assert found.power_w == 300.0


def test_clocks_and_event_reasons_are_those_of_busy_samples() -> None:
    """Idle clocks mislead; a share of all samples would hide throttling behind idleness."""
    hot = replace(BUSY, event_reasons=0x60)
    states = {0.0: IDLE, 1.0: IDLE, 2.0: BUSY, 3.0: hot}
    found = summary(record(lambda t: states[min(float(int(t)), 3.0)]))
    assert found.sm_clock_mhz == 1500.0
    assert found.busy_samples == 21
    assert dict(found.event_reasons) == {
        "software thermal slowdown": pytest.approx(11 / 21),
        "hardware thermal slowdown": pytest.approx(11 / 21),
    }


@pytest.mark.parametrize(
    ("gpu", "busy", "clock"),
    [
        (lambda t: replace(BUSY, gpu_util_pct=None, event_reasons=int(t < 2)), 21, 1500.0),
        (lambda _: replace(BUSY, gpu_util_pct=None, event_reasons=None), None, 1500.0),
        (lambda _: IDLE, 0, None),
    ],
    ids=["by the idle bit", "unknown", "none"],
)
def test_busy_samples_are_told_by_utilisation_or_the_idle_bit(gpu, busy, clock) -> None:
    found = summary(record(gpu))
    assert found.busy_samples == busy
    assert found.sm_clock_mhz == clock
    assert ("sm_clock_mhz" in dict(found.gaps)) == (clock is None)


def test_clock_spread_is_that_of_the_middle_samples() -> None:
    """One odd sample in forty is no spread; a clock that sags half the time is."""
    steady = record(lambda t: replace(BUSY, sm_clock_mhz=300.0) if t == 2.0 else BUSY)
    sagging = record(lambda t: replace(BUSY, sm_clock_mhz=1350.0) if t > 2.0 else BUSY)
    assert summary(steady).sm_clock_spread_pct == 0.0
    assert summary(sagging).sm_clock_spread_pct == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("counter", "begin", "end", "joules"),
    [
        (lambda t: 1e9 + 250 * t, 0.55, 3.05, 250 * 2.5),
        (lambda t: 250 * t if t >= 0.3 else None, 0.0, 4.0, 1000.0),
        (lambda t: 250 * t if t >= 1.0 else None, 0.0, 4.0, None),
        (lambda t: 250 * t, 0.0, 1.9, None),
        (lambda t: 9e9 if t < 2 else 250 * t, 0.0, 4.0, None),
    ],
    ids=["growth", "scaled", "hardly sampled", "too short", "driver reloaded"],
)
def test_energy_is_the_growth_of_its_counter_over_the_window(counter, begin, end, joules) -> None:
    """The counter ticks about ten times a second, so two seconds are needed."""
    found = summary(record(lambda t: replace(BUSY, energy_j=counter(t))), begin, end)
    assert found.energy_j == (joules if joules is None else pytest.approx(joules))
    assert ("energy_j" in dict(found.gaps)) == (joules is None)


def crowd(
    *pids: int,
    own: tuple[int, ...] = (),
    hidden: tuple[int, ...] = (),
    times: int = 5,
    gpu: GpuSample = BUSY,
    working: tuple[int, ...] | None = None,
) -> list[GpuSample]:
    """`pids` on the card in the first `times` of five listings, a second apart; all at work."""
    working = pids if working is None else working
    return [
        replace(
            gpu,
            time=START + tick,
            processes=dict.fromkeys(pids if tick < times else ()),
            working_pids=working if tick < times else own,
            own_pids=own,
            hidden_pids=hidden,
        )
        for tick in range(5)
    ]


@pytest.mark.parametrize(
    ("seen", "foreign"),
    [
        (crowd(gpu=IDLE), 0),
        (crowd(10, 11, own=(10, 11)), 0),
        (crowd(10, 99, own=(10,)), 1),
        (crowd(99, 98), 2),
        (crowd(10, 7000, own=(10,), hidden=(7000,)), 1),  # of another container
        (crowd(10, 99, own=(10,), times=1), 0),  # listed once
        (crowd(10, 99, own=(10,), working=(10,)), 0),  # holds memory and does nothing
        (crowd(10, 99, own=(10,), gpu=IDLE, working=()), 0),
        (crowd(10, 99, own=(10,), working=()), None),  # the driver does not say who works
        (crowd(7000, 7001, hidden=(7000, 7001)), None),  # ours are among them
        (crowd(), None),  # on a working card
    ],
)
def test_strangers_at_work_on_the_card_are_counted(seen, foreign) -> None:
    found = summary(seen)
    assert found.foreign_pids == foreign
    assert dict(found.gaps).get("foreign_pids") == (UNNAMED if foreign is None else None)


@pytest.mark.parametrize(
    ("pids", "working", "known"), [((10,), (10,), True), ((10, 99), (10, 99), False)]
)
def test_joules_of_a_card_that_others_use_are_not_the_programs(pids, working, known) -> None:
    """The counter is the card's, and no driver tells whose work it was for."""
    seen = crowd(*pids, own=(10,), working=working)
    counted = [replace(each, energy_j=250.0 * (each.time - START)) for each in seen]
    found = summary(counted, 0.0, 4.0)
    assert (found.energy_j is not None) is known
    assert ("other programs" in dict(found.gaps).get("energy_j", "")) is not known


def test_each_missing_figure_has_its_reason() -> None:
    """Readings that came have none, though the card withheld them for a moment."""
    withheld = dict(
        summary(
            record(lambda _: BUSY), energy_j="not supported", power_w="a moment", processes="denied"
        ).gaps
    )
    assert withheld == {"energy_j": "not supported", "foreign_pids": "denied"}
    empty = summary(record(lambda _: BUSY), 100.0, 103.0)
    assert empty.gpu_util_pct is None
    assert empty.busy_samples is None
    assert set(dict(empty.gaps).values()) == {NOT_READ}
