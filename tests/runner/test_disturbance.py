"""The rate is counted over time in which nobody disturbed, where there was enough of that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from advisor.machine.others import LoadSample
from advisor.model import Disturbance, MeasurePlan, Run, Telemetry
from advisor.probe import patience
from advisor.runner import run_trial
from advisor.runner.disturbance import Part, judge, on_card, spans, window_rates

if TYPE_CHECKING:
    from tests.runner.conftest import MakeTrial

BURN = (
    "import os, time\nfor _ in range(os.cpu_count() - 1):\n    if not os.fork(): break\n"
    "end = time.time() + 60\nwhile time.time() < end: pass"
)

pytestmark = pytest.mark.usefixtures("others_are_seen")


def slices(
    seconds: float, busy: list[tuple[float, float]], **told: float | None
) -> list[LoadSample]:
    """Tenths of a second on two CPUs; in the `busy` spans others take half a CPU."""
    found = []
    for tenth in range(round(seconds * 10)):
        start, end = tenth / 10, (tenth + 1) / 10
        theirs = any(a < end - 1e-9 and b > start + 1e-9 for a, b in busy)
        facts: dict[str, float | None] = {
            "own_cpus": 1.5,
            "others_cpus": 0.5 if theirs else 0.0,
            "waited_cpus": 0.5 if theirs else 0.0,
            "steal_share": 0.0,
        }
        found.append(LoadSample(start=start, end=end, cpus=2, **facts | told))  # type: ignore[arg-type]
    return found


def parts(seconds: float, busy: list[tuple[float, float]], slow: float = 5.0) -> tuple[Part, ...]:
    """Tenths of a second with ten units each, or so many times fewer in the `busy` spans."""
    found = []
    for each in slices(seconds, busy):
        units = 10.0 / (slow if each.others_cpus else 1.0)
        found.append(Part(start=each.start, end=each.end, units=units))
    return tuple(found)


def test_a_burst_is_left_out() -> None:
    """The rate is that of the clean parts, and the run counts as undisturbed."""
    busy = [(0.5, 0.8), (1.5, 1.8), (2.5, 2.8)]
    judged = judge((parts(3.0, busy),), slices(3.0, busy), 0.0, 3.0)
    raw = sum(part.units for part in parts(3.0, busy)) / 3.0
    assert raw * judged.factor == pytest.approx(100.0)
    assert judged.disturbance.disturbed is False
    assert judged.disturbance.clean_share == pytest.approx(0.6)
    assert judged.disturbance.others_cpus == pytest.approx(0.15)
    assert set(map(round, window_rates(judged.counted))) == {100}


def test_what_follows_a_burst_does_not_count_either() -> None:
    """A queue that filled up meanwhile would flatter the next part."""
    busy = [(0.5, 0.8)]
    flattered = [
        Part(start=p.start, end=p.end, units=50.0) if p.start == pytest.approx(0.8) else p
        for p in parts(3.0, busy)
    ]
    judged = judge((flattered,), slices(3.0, busy), 0.0, 3.0)
    raw = sum(part.units for part in flattered) / 3.0
    assert raw * judged.factor == pytest.approx(100.0)


def test_one_who_stays_disturbs_the_run() -> None:
    """Nothing is left to count over: the whole window stands, and says so."""
    busy = [(0.0, 3.0)]
    judged = judge((parts(3.0, busy),), slices(3.0, busy), 0.0, 3.0)
    assert judged.factor == 1.0
    assert judged.disturbance.disturbed is True
    assert judged.disturbance.clean_share == 0.0


def test_too_little_clean_time_is_no_rate() -> None:
    """A second is needed, and a quarter of the window."""
    busy = [(0.0, 2.0)]
    told = judge((parts(3.0, busy),), slices(3.0, busy), 0.0, 3.0).disturbance
    assert told.disturbed is True
    busy = [(0.0, 9.0)]
    told = judge((parts(11.0, busy),), slices(11.0, busy), 0.0, 11.0).disturbance
    assert told.disturbed is True


def test_many_that_take_a_little_each_are_seen_in_the_mean() -> None:
    """Slices that look clean one by one, while 6 % of the run's CPU time went to others."""
    creeping = slices(3.0, [], own_cpus=1.9, others_cpus=0.1, waited_cpus=0.12)
    assert not any(each.disturbed for each in creeping)
    told = judge((parts(3.0, []),), creeping, 0.0, 3.0).disturbance
    assert told.disturbed is True


def test_own_workers_on_too_few_cpus_are_no_disturbance() -> None:
    """It waits for itself."""
    crowded = slices(3.0, [], own_cpus=2.0, waited_cpus=3.0)
    judged = judge((parts(3.0, []),), crowded, 0.0, 3.0)
    assert judged.disturbance.disturbed is False
    assert judged.disturbance.clean_share == 1.0
    assert judged.disturbance.waited_cpus == pytest.approx(3.0)


def test_a_host_that_does_not_tell_leaves_it_open() -> None:
    """None is not False."""
    unknown = slices(3.0, [], others_cpus=None, waited_cpus=None, steal_share=None)
    for told in (unknown, []):
        judged = judge((parts(3.0, []),), told, 0.0, 3.0)
        assert judged.disturbance == Disturbance()
        assert judged.factor == 1.0


def test_pauses_weigh_as_much_as_in_the_whole_window() -> None:
    """Where a burst hit the validation pass of one epoch, the other's still counts for both."""
    cycle = [Part(start=k / 10, end=(k + 1) / 10, units=10.0 * (k % 10 > 3), marks=int(k % 10 == 0))
             for k in range(40)]  # fmt: skip
    merged = [p for p in cycle if p.start % 1 > 0.35]
    merged += [Part(start=s, end=s + 0.4, units=0.5, marks=1) for s in range(4)]
    merged.sort(key=lambda p: p.start)
    quiet = sum(p.units for p in merged) / 4
    judged = judge((merged,), slices(4.0, [(0.0, 0.3), (2.0, 2.3)]), 0.0, 4.0)
    assert judged.disturbance.disturbed is False
    assert quiet * judged.factor == pytest.approx(quiet, rel=0.01)


def test_long_steps_are_not_lost_to_a_short_burst() -> None:
    """A part of three seconds of which others took a twentieth is clean."""
    long = tuple(Part(start=3.0 * k, end=3.0 * (k + 1), units=1.0) for k in range(4))
    told = judge((long,), slices(12.0, [(1.0, 1.04)], ), 0.0, 12.0).disturbance  # fmt: skip
    assert told.clean_share == pytest.approx(0.75)
    told = judge((long,), slices(12.0, []), 0.0, 12.0).disturbance
    assert told.clean_share == 1.0


def test_a_run_without_parts_is_disturbed_or_not_as_a_whole() -> None:
    """`time of the whole run` has no parts to choose from."""
    assert judge((), slices(3.0, []), 0.0, 3.0).disturbance.disturbed is False
    assert judge((), slices(3.0, [(1.0, 1.5)]), 0.0, 3.0).disturbance.disturbed is True


def test_a_rest_that_took_no_time_is_harmless() -> None:
    """Two steps may end at once by the device's clock."""
    rest = (*parts(0.5, []), Part(start=0.5, end=0.5, units=10.0))
    judged = judge((rest,), slices(0.5, []), 0.0, 0.5)
    assert judged.disturbance.disturbed is False
    assert window_rates((rest,))[-1] == 0.0


def test_a_card_that_others_use_disturbs() -> None:
    """No part of the window can be left out then."""
    quiet = Disturbance(disturbed=False, clean_share=1.0)
    assert on_card(quiet, Telemetry(foreign_pids=0)).disturbed is False
    assert on_card(quiet, Telemetry(foreign_pids=2)).disturbed is True
    slowed = Telemetry(event_reasons=(("idle", 0.5), ("hardware slowdown", 0.3)))
    assert on_card(quiet, slowed).clocks_held == (("hardware slowdown", 0.3),)
    assert on_card(Disturbance(), Telemetry()).disturbed is None


# --- windows that wait --------------------------------------------------------------------


def tell(folder: Path, *found: tuple[float, float]) -> str:
    (folder / patience.FILE).write_text(f'{{"spans": {[list(span) for span in found]}}}')
    return str(folder)


def test_a_window_goes_on_while_it_helps(tmp_path: Path) -> None:
    """Until three clean seconds, at most four times as long, and not where all is lost."""
    assert patience.more_s(str(tmp_path), 0.0, 3.0, 3.0) == 0.0  # nobody tells
    assert patience.more_s(tell(tmp_path), 0.0, 3.0, 3.0) == 0.0
    assert patience.more_s(tell(tmp_path, (1.0, 2.0)), 0.0, 3.0, 3.0) == pytest.approx(1.0)
    assert patience.more_s(tell(tmp_path, (1.0, 2.0)), 0.0, 4.0, 3.0) == 0.0
    assert patience.more_s(tell(tmp_path, (0.1, 3.0)), 0.0, 3.0, 3.0) == 0.0
    assert patience.more_s(tell(tmp_path, (2.0, 12.0)), 0.0, 12.0, 3.0) == 0.0
    (tmp_path / patience.FILE).write_text("{")
    assert patience.more_s(str(tmp_path), 0.0, 3.0, 3.0) == 0.0


def test_spans_are_apart_and_in_order() -> None:
    """What a burst leaves behind belongs to it."""
    assert spans(slices(2.0, [(0.2, 0.4), (0.5, 0.6), (1.0, 1.1)])) == [
        (pytest.approx(0.2), pytest.approx(0.7)),
        (pytest.approx(1.0), pytest.approx(1.2)),
    ]


# --- real ones ----------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/schedstat").is_file(), reason="nobody tells here")
def test_a_run_beside_hogs_says_so(make_trial: MakeTrial) -> None:
    """Processes that hold every core: flagged, and named by their command."""
    lines = "while :; do echo tile; sleep 0.02; done"
    plan = MeasurePlan(measure_s=0.5, min_steps=3, unit_regex="tile")
    with subprocess.Popen([sys.executable, "-c", BURN], start_new_session=True) as hogs:
        try:
            run = run_trial(make_trial("bash", "-c", lines, plan=plan))
        finally:
            os.killpg(hogs.pid, 9)
    assert isinstance(run, Run), run
    told = run.disturbance
    assert told.disturbed is True
    assert told.others_cpus is not None
    assert told.others_cpus > 0.3
    assert any("python" in each.name for each in told.who)


@pytest.mark.skipif(not Path("/proc/self/schedstat").is_file(), reason="nobody tells here")
def test_a_run_in_its_own_way_waits_for_itself(make_trial: MakeTrial) -> None:
    """More burning processes of its own than cores: they wait, others took nearly nothing of it.

    On a machine that is busy with others meanwhile, only what was waited for can be told.
    """
    script = (
        "import os, sys, time\n"
        "for _ in range(os.cpu_count() + 1):\n"
        "    if not os.fork():\n"
        "        while os.getppid() != 1: pass\n"
        "while True:\n"
        "    end = time.time() + 0.05\n"
        "    while time.time() < end: pass\n"
        "    print('tile', flush=True)\n"
    )
    plan = MeasurePlan(measure_s=0.5, min_steps=3, unit_regex="tile")
    run = run_trial(make_trial(sys.executable, "-c", script, plan=plan))
    assert isinstance(run, Run), run
    told = run.disturbance
    assert told.others_cpus is not None
    assert told.waited_cpus is not None
    assert told.waited_cpus > told.others_cpus
