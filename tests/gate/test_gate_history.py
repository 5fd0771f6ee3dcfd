"""The history file: when it calls red, what it never does, and how it is re-based."""

from __future__ import annotations

import json
import math
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from gate_engine import asked_for, in_process

from advisor.errors import ReportError
from advisor.gate import history, modes, report, scatter, trend
from advisor.gate.command import exit_code
from advisor.gate.history import Series, Session, baseline_of, compare, facts_of, key_of
from advisor.gate.records import HostEntry
from benchmarks.history_nights import World, alarms, machine, red_nights, scatters

HOST = HostEntry(cpu="x", cpus=8, gpus=["NVIDIA H100"], driver="560", power_limit_w=700.0)


def series(rates: list[float], **last: object) -> Series:
    sessions = [
        Session(created="2026-01-01", sha=f"c{n}", units_per_s=rate, processes=4)
        for n, rate in enumerate(rates)
    ]
    if last:
        sessions[-1] = sessions[-1].model_copy(update=last)
    return Series(workload="train", unit="sample", facts={"a": "b"}, sessions=sessions)


def rates(n: int, sigma: float = 0.01, seed: int = 1) -> list[float]:
    rng = random.Random(seed)
    return [100 * (1 + rng.gauss(0, sigma)) for _ in range(n)]


def test_ten_sessions_make_a_baseline() -> None:
    assert compare(None, 100.0, 0.05).verdict == "no-baseline"
    assert compare(series(rates(9)), 50.0, 0.05).verdict == "inconclusive"
    assert compare(series(rates(10)), 50.0, 0.05).verdict == "regression"


def test_red_needs_the_threshold_and_the_scatter() -> None:
    quiet, noisy = series(rates(12, 0.002)), series(rates(12, 0.06))
    assert compare(quiet, 97.0, 0.05).verdict == "pass"
    assert compare(quiet, 93.0, 0.05).verdict == "regression"
    assert compare(noisy, 93.0, 0.05).verdict == "pass"


def test_no_change_is_rarely_red() -> None:
    red = 0
    for seed in range(500):
        drawn = rates(21, 0.04, seed)
        red += compare(series(drawn[:20]), drawn[20], 0.05).verdict == "regression"
    assert red / 500 <= 0.02


def nightly(level, nights: int = 200, sigma: float = 0.01, seed: int = 3) -> list[int]:
    """The red nights of one of twenty benchmarks, of which `level` says the true log rate."""
    world = World(name=str(seed), level=level, sigma=sigma)
    first, *others = machine(world, seed, nights)
    return red_nights(first, list(map(scatters, others)))


@pytest.mark.parametrize("a_night", [0.001, 0.003, 0.005])
def test_a_creep_is_red_within_ten_nights_of_three_percent(a_night: float) -> None:
    """No night differs from the one before: the baseline that follows it would never tell."""
    lost = math.ceil(math.log(0.97) / math.log1p(-a_night))
    red = nightly(lambda night: night * math.log1p(-a_night), lost + 11)
    assert red
    assert red[-1] == lost + 10


@pytest.mark.parametrize("lost", [55, 100])
def test_a_gain_that_is_lost_again_is_a_loss(lost: int) -> None:
    """Also while the sessions before it are of both levels, and explain anything."""
    red = nightly(lambda night: math.log(1.2) if 40 <= night < lost else 0.0, lost + 15)
    assert red
    assert lost <= red[0] <= lost + 10


def test_a_step_that_is_recovered_is_no_loss_any_more() -> None:
    red = nightly(lambda night: math.log(0.9) if 40 <= night < 60 else 0.0, 90)
    assert red[0] <= 42
    assert red[-1] <= 72


@pytest.mark.parametrize("tails", [None, 5], ids=["normal", "straying"])
def test_twenty_unchanged_benchmarks_are_left_alone(tails: int | None) -> None:
    """At one in a hundred a night and benchmark they would be red on every fifth night. Where
    nights stray, one in a hundred is three standard deviations off, one in ten thousand seven."""
    world = World(name="unchanged", sigma=0.025, tails=tails)
    assert alarms(world, 0, 60) == 0


def test_one_night_that_strays_is_no_loss_and_two_that_do_not_recover_are() -> None:
    """The second tells the first from a stray; only what is far beyond any needs none."""
    held = rates(30)
    assert compare(series(held), 93.0, 0.05).verdict == "pass"
    assert compare(series([*held, 93.0]), 93.0, 0.05).verdict == "regression"
    assert compare(series(held), 85.0, 0.05).verdict == "regression"


def test_benchmarks_of_a_machine_know_their_scatter_together() -> None:
    """Alone, a short series allows for not knowing its own; one unlike the others hardly does."""
    alike = [scatter.own([math.log(r) for r in rates(18, 0.01, n)]) for n in range(20)]
    first, *others = [each for each in alike if each]
    known = scatter.moderated(first, others)
    assert first.degrees < 12 < 100 < known.degrees
    assert known.sigma == pytest.approx(0.01, rel=0.25)
    wild = scatter.own([math.log(rate) for rate in rates(18, 0.06, 99)])
    assert wild is not None
    assert scatter.moderated(wild, others).sigma > 0.75 * wild.sigma
    assert scatter.moderated(wild, others).degrees < known.degrees / 5
    assert scatter.moderated(first, others[:2]) == first, "two others say little"


def test_what_was_lost_is_said_with_its_dates_and_how_to_confirm_it() -> None:
    held = rates(40, 0.002)
    found = compare(series([*held, *(rate * 0.96 for rate in rates(4, 0.002))]), 96.0, 0.05)
    assert found.verdict == "regression"
    assert "4.0 % lost for 5 sessions, against what was held from 2026-01-01" in found.reason
    assert "--base-ref c36" in found.reason


def test_a_lasting_loss_below_what_counts_is_left_alone() -> None:
    """However sure it is."""
    lower = series([*rates(40, 0.001), *(0.985 * rate for rate in rates(4, 0.001))])
    assert compare(lower, 98.5, 0.05).verdict == "pass"
    assert compare(lower, 98.5, 0.05, smallest_loss=0.01).verdict == "regression"


def test_a_rebase_accepts_a_loss() -> None:
    held, lower = rates(40, 0.002), rates(20, 0.002, 2)
    accepted = series([*held, *(0.95 * rate for rate in lower)])
    assert compare(accepted, 95.0, 0.05).verdict == "regression"
    accepted.sessions[40] = accepted.sessions[40].model_copy(update={"rebase": True})
    assert compare(accepted, 95.0, 0.05).verdict == "pass"


def test_steps_of_the_level_are_found_where_they_are() -> None:
    drawn = rates(60, 0.01)
    levels = [math.log(rate * (1.1 if 20 <= n < 45 else 1.0)) for n, rate in enumerate(drawn)]
    found = trend.steps(levels)
    assert [step.at for step in found] == [20, 45]
    assert [step.change for step in found] == pytest.approx([0.095, -0.095], abs=0.02)
    assert trend.steps([math.log(rate) for rate in rates(60, 0.01)]) == []


def test_sessions_that_end_at_once_are_all_kept(tmp_path) -> None:
    """Each reads what is there when it writes; none writes over another's."""
    path = tmp_path / "h.json"
    ready = threading.Barrier(4)

    def end(number: int) -> None:
        ready.wait(60)
        with history.held(path):
            past = history.read(path)
            time.sleep(0.02)  # long enough for the others to have read, if they might
            grown = history.grown(past, a_series(str(number)), a_session())
            history.claim(path).write(path, history.dump(grown))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(end, range(4)))
    assert len(history.read(path).series) == 4


def a_series(name: str) -> Series:
    return Series(workload=name, unit="u", facts={"n": name})


def a_session() -> Session:
    return Session(created="x", sha=None, units_per_s=1.0, processes=1)


def test_red_sessions_never_join_the_baseline() -> None:
    """The ratchet of other gates: the slow run becomes the next run's base."""
    good = rates(12, 0.002)
    after_red = series([*good, 80.0], red=True)
    assert len(baseline_of(after_red)) == 12
    assert compare(after_red, 80.0, 0.05).verdict == "regression"
    assert compare(after_red, 80.0, 0.05).last_good == "c11"


def test_a_reviewed_rebase_starts_anew() -> None:
    rebased = series([*rates(12, 0.002), 80.0], rebase=True)
    assert len(baseline_of(rebased)) == 1
    assert compare(rebased, 80.0, 0.05).verdict == "inconclusive"


@pytest.mark.parametrize(
    "changed",
    [{"gpus": ["NVIDIA H200"]}, {"driver": "570"}, {"power_limit_w": 500.0}, {"torch": "2.9"}],
)
def test_another_machine_or_stack_is_another_series(changed: dict[str, object]) -> None:
    other = HOST.model_copy(update=changed)
    assert key_of(facts_of(HOST, "d", "probe", "sample")) != key_of(
        facts_of(other, "d", "probe", "sample")
    )


def test_readings_that_change_from_boot_to_boot_are_no_part_of_the_key() -> None:
    other = HOST.model_copy(update={"boot_id": "x", "load_1min": 3.0, "clocks": "locked"})
    assert facts_of(HOST, "d", "probe", "sample") == facts_of(other, "d", "probe", "sample")


def test_a_broken_file_is_one_clear_error(tmp_path) -> None:
    (tmp_path / "h.json").write_text("{")
    with pytest.raises(ReportError, match="no history"):
        history.read(tmp_path / "h.json")


def test_sessions_are_appended_after_the_verdict_and_red_ones_marked(
    repo, tmp_path, monkeypatch
) -> None:
    """A red session is advice: exit 0, unless --enforce; it is kept, but marked."""
    repo.commit({"rate": "100"})
    path = repo.out / "history.json"
    flags = ("--mode", "history", "--history", str(path))
    gate = in_process(repo.path, tmp_path, monkeypatch, modes)
    first = gate(modes.with_history, *flags)
    assert (exit_code(first, asked_for(*flags)), first.verdict) == (0, "no-baseline")
    assert "- Rate: command 100" in report.lines(first)
    assert "of 4 fresh processes" in report.lines(first)
    content = json.loads(path.read_text())
    (key,) = content["series"]
    (session,) = content["series"][key]["sessions"]
    assert session["processes"] == 4
    content["series"][key]["sessions"] = [
        {**session, "units_per_s": rate} for rate in rates(10, 0.002)
    ]
    path.write_text(json.dumps(content))
    repo.commit({"rate": "80"})
    red = gate(modes.with_history, *flags)
    assert (exit_code(red, asked_for(*flags)), red.verdict) == (0, "regression")
    assert "--base-ref" in red.reason
    assert "% slower than the sessions before (" in report.lines(red)
    kept = json.loads(path.read_text())["series"][key]["sessions"]
    assert [s["red"] for s in kept] == [False] * 10 + [True]
    assert exit_code(red, asked_for(*flags, "--enforce")) == 1


def test_a_session_waits_for_who_is_writing_and_keeps_what_they_wrote(
    repo, tmp_path, monkeypatch
) -> None:
    """Who holds the file has read it before this session ends, and writes it after."""
    repo.commit({"rate": "100"})
    path = tmp_path / "h.json"
    holding, ended = threading.Event(), threading.Event()

    def other() -> None:
        with history.held(path):
            past = history.read(path)
            holding.set()
            ended.wait(1)
            grown = history.grown(past, a_series("other"), a_session())
            history.claim(path).write(path, history.dump(grown))

    measured = modes.measured

    def then_the_other(*args: Any) -> Any:
        record = measured(*args)
        threading.Thread(target=other, daemon=True).start()
        holding.wait(5)
        return record

    gate = in_process(repo.path, tmp_path, monkeypatch, modes)
    monkeypatch.setattr(modes, "measured", then_the_other)
    gate(modes.with_history, "--mode", "history", "--history", str(path))
    ended.set()
    kept = {each.workload for each in history.read(path).series.values()}
    assert kept == {"command", "other"}
