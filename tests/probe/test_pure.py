"""The probe's pure parts, on logs written by hand: items, ledger, cycles, window, device clock."""

from __future__ import annotations

import dataclasses
import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from advisor.probe import clock, cycles, observe, steps, training, window
from advisor.probe.batches import Counter, copied
from advisor.probe.log import EXHAUSTED, Log, Root, Rota
from advisor.probe.session import Session

if TYPE_CHECKING:
    from pathlib import Path


@dataclasses.dataclass
class Sample:
    pixels: Any
    name: str = ""


class Bag:
    """An object that is no container."""

    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)


ROWS = torch.zeros(6, 3, 8, 8)


@pytest.mark.parametrize(
    "batch",
    [
        ROWS,
        [ROWS, torch.zeros(6)],
        (torch.zeros(()), {"x": {"deep": ROWS}}),
        {"ids": ROWS, "meta": ["a"] * 6},
        Sample(pixels=ROWS),
        Bag(inner=Bag(x=ROWS)),
        [[torch.zeros(3, 8, 8)] * 6, [{"box": torch.zeros(2, 4)}] * 6],
        ["a.png"] * 6,
    ],
    ids=["tensor", "list", "nested", "dict", "dataclass", "object", "detection", "names"],
)
def test_items_of_a_batch(batch: Any) -> None:
    """Whatever it is wrapped in, with the loader's own batch size known."""
    counter = Counter(expected=6)
    assert counter.count(batch) == 6
    assert counter.count(batch) == 6


def test_the_last_batch_may_be_smaller() -> None:
    """The way to the count is kept, the count is not."""
    counter = Counter(expected=6)
    assert [counter.count({"x": torch.zeros(n, 3)}) for n in (6, 6, 2)] == [6, 6, 2]


def test_items_without_an_expected_number() -> None:
    """Without one the most common leading dimension counts; a batch of another kind is searched."""
    counter = Counter()
    assert counter.count((torch.zeros(5, 2), torch.zeros(5), torch.zeros(1))) == 5
    assert counter.count({"other": torch.zeros(7, 2)}) == 7


def test_a_replayed_batch_survives_what_the_program_does_to_it() -> None:
    """Containers are new, tensors the same."""
    batch = {"x": ROWS, "rest": [ROWS, Sample(pixels=ROWS)]}
    again = copied(batch)
    again.pop("x")
    again["rest"].clear()
    assert list(batch) == ["x", "rest"]
    assert len(batch["rest"]) == 2
    assert copied(batch)["rest"][1].pixels is ROWS


# --- logs -----------------------------------------------------------------------------------


def log_with(loaders: int = 1, workers: int = 0, prefetch: int | None = None) -> Log:
    log = Log()
    log.loaders = [{"workers": workers, "prefetch": prefetch} for _ in range(loaders)]
    log.roots = [Root(torch.nn.Linear(1, 1), 0, 2)]
    return log


def train(
    log: Log,
    steps_made: int,
    *,
    start: float = 0.0,
    load: float = 0.002,
    work: float = 0.008,
    batch: float = 4.0,
    accumulate: int = 1,
    loader: int = 0,
) -> float:
    """Append training steps to `log`; returns when they ended."""
    now = start
    for _ in range(steps_made):
        for number in range(accumulate):
            log.nexts.append((now, now + load, loader, batch, True))
            now += load
            log.forwards.append((now, now + work / 2, 0, batch, True))
            log.backwards.append((now + work / 2, now + work, number == 0))
            now += work
        log.opts.append((now, now, 1))
    return now


def infer(log: Log, batches: int, *, start: float, batch: float = 10.0, loader: int = 1) -> float:
    """Append forwards without gradient over another loader, to its end."""
    now = start
    for _ in range(batches):
        log.nexts.append((now, now + 0.001, loader, batch, True))
        log.forwards.append((now + 0.001, now + 0.003, 0, batch, False))
        now += 0.003
    log.nexts.append((now, now, loader, EXHAUSTED, True))
    return now


PLAN: dict[str, Any] = {"measure_s": 0.5, "min_steps": 10}


def measured(log: Log, plan: dict[str, Any] = PLAN, *, ended: bool = False) -> window.Window:
    ledger = steps.read(log, plan, ended)
    assert ledger is not None
    found, need = window.find(log, ledger, plan, whole=ended)
    assert found is not None, need and need.why
    return found


def test_training_counts_the_train_loader_only() -> None:
    """A sanity validation before, and one in between, is another loader's."""
    log = log_with(loaders=2)
    now = infer(log, 20, start=0.0)
    now = train(log, 100, start=now)
    now = infer(log, 20, start=now)
    train(log, 100, start=now)
    assert training.train_loaders(log)[0] == 0
    found = measured(log)
    assert found.ledger.batch == 4
    assert found.units_per_s() == pytest.approx(400.0)
    assert window.wait_share(log, found) == pytest.approx(0.2)


def test_accumulation_is_one_step() -> None:
    """Units of a step are those of all its batches."""
    log = log_with()
    train(log, 60, accumulate=4)
    found = measured(log)
    assert found.ledger.batches_per_step == 4
    assert found.seconds / found.count == pytest.approx(0.04)
    assert found.units_per_s() == pytest.approx(400.0)


SIZES = {"A": 4.0, "B": 12.0}


def loop(log: Log, pattern: str, times: int) -> None:
    """Append `times` rounds of events, a millisecond each: A and B load a batch of their loader,
    f is a forward of A's items, g one of two such batches, b a backward, s a step."""
    now = len(log.opts) * 1.0
    for _ in range(times):
        for event in pattern:
            now += 0.001
            if event in SIZES:
                loader = "AB".index(event)
                log.nexts.append((now, now + 0.0001, loader, SIZES[event], True))
            elif event in "fg":
                items = SIZES["A"] * (1 + (event == "g"))
                log.forwards.append((now, now + 0.0005, 0, items, True))
            elif event == "b":
                log.backwards.append((now, now + 0.0005, True))
            else:
                log.opts.append((now, now + 0.0005, 1))


@pytest.mark.parametrize(
    ("pattern", "units"),
    [
        ("Afbs", 4),
        ("AAfbs", 4),
        ("AfbsAAAfbs", 4),
        ("AAffbbs", 8),
        ("AAffbs", 8),
        ("AAgbs", 8),
        ("AfAfbs", 8),
        ("AfbAfbs", 8),
        ("AfbfbsAAfbfbs", 4),
        ("ABfbs", 4),
        ("ABffbs", 4),
        ("AfbsBfbs", 8),
        ("ABffbsAfbsAfbsAfbs", 4),
        ("AffbfbsA", 4),
    ],
    ids=[
        "plain",
        "every second one skipped",
        "some skipped",
        "gathered for two backwards",
        "gathered for one backward",
        "gathered into one forward",
        "losses summed",
        "accumulation",
        "two backwards a batch, some skipped",
        "zip",
        "zip, a forward for each",
        "two loaders in turn",
        "a second batch beside every fourth",
        "loaded ahead",
    ],
)
def test_batches_that_were_trained_on(pattern: str, units: float) -> None:
    """What was loaded and skipped is no unit; what was loaded ahead or gathered is."""
    log = log_with(loaders=2)
    loop(log, pattern, 100)
    ledger = steps.read(log, PLAN)
    assert ledger is not None
    whole = ledger.units[10:-10]
    assert sum(whole) / len(whole) == pytest.approx(units, rel=0.02)


def test_a_batch_loaded_ahead_over_short_epochs_is_none_skipped() -> None:
    """The first two batches of each epoch come in a row."""
    log = log_with()
    for _ in range(12):
        loop(log, "A", 1)
        loop(log, "Afbs", 19)
        loop(log, "fbs", 1)
        log.nexts.append((log.opts[-1][1], log.opts[-1][1], 0, EXHAUSTED, True))
    ledger = steps.read(log, PLAN)
    assert ledger is not None
    assert sum(ledger.units) == pytest.approx(4 * 20 * 12, rel=0.01)


@pytest.mark.parametrize(
    ("pattern", "units"),
    [("fbs", 4), ("fbfbs", 8), ("fffbs", 4), ("gbs", 8)],
    ids=["plain", "accumulation", "three views of a batch", "larger batch"],
)
def test_units_without_a_loader(pattern: str, units: float) -> None:
    """One forward counts for each backward."""
    log = log_with(loaders=0)
    loop(log, pattern, 60)
    ledger = steps.read(log, PLAN)
    assert ledger is not None
    assert set(ledger.units[1:]) == {units}


def test_a_critic_and_its_generator_train_on_one_batch() -> None:
    """Backwards that another optimizer has applied are not counted again."""
    log = log_with(loaders=0)
    loop(log, "ffbsfbs", 60)
    log.opts = [(a, b, 1 + k % 2) for k, (a, b, _) in enumerate(log.opts)]
    ledger = steps.read(log, PLAN)
    assert ledger is not None
    assert set(ledger.units) == {4}
    assert ledger.accumulation == 1


def test_a_closure_goes_through_one_batch() -> None:
    """Backwards within an optimizer's step are one."""
    log = log_with(loaders=0)
    loop(log, "fbfbfbs", 60)
    log.opts = [(end - 0.006, end, 1) for _, end, _ in log.opts]
    ledger = steps.read(log, PLAN)
    assert ledger is not None
    assert set(ledger.units) == {4}
    assert ledger.accumulation == 1


def inner_log(outer: int, many: int, *, running: int = 0) -> Log:
    """A root called `outer` times that calls another network `many` times; then once more, up to
    its `running`th call."""
    log = log_with(loaders=0)
    network = Root(torch.nn.Linear(1, 1), 1, 2)
    log.roots.append(network)
    log.roots[0].inners = [network]
    now = 0.0
    for number in range(outer + bool(running)):
        start = now
        for _ in range(many if number < outer else running):
            log.inners.append((now + 0.001, now + 0.009, 1, 6.0, False))
            now += 0.01
        if number < outer:
            log.forwards.append((start, now, 0, 3.0, False))
        else:
            log.running = (start, 0)
    return log


def test_a_loop_within_a_roots_forward() -> None:
    """The network's calls are the forwards; the root's input tells the items."""
    found = measured(inner_log(5, 40, running=10))
    assert found.ledger.forwards_per_unit == 40
    assert found.ledger.batch == 3
    assert found.units_per_s() == pytest.approx(3 / 0.4, rel=0.01)
    assert sum(window.shares(inner_log(5, 40, running=10), found).values()) == pytest.approx(1)


def test_a_loop_within_the_first_forward_waits_for_its_end() -> None:
    """How many forwards it takes is not known before; unless the plan knows."""
    log = inner_log(0, 40, running=200)
    ledger = steps.read(log, PLAN)
    assert ledger is not None
    assert window.find(log, ledger, PLAN)[1] is not None
    found = measured(log, {**PLAN, "forwards_per_unit": 1000.0})
    assert found.units_per_s() == pytest.approx(6 / 10, rel=0.01)


def test_calls_within_the_first_forward_are_no_whole_steps() -> None:
    """Nor is anything, in a program with an optimizer, before its update."""
    log = inner_log(0, 40, running=200)
    assert (log.steps(), log.whole_steps(built=False)) == (200, 0)
    train(log, 5)
    assert log.whole_steps(built=True) == 5
    log.opts.clear()
    assert (log.whole_steps(built=False), log.whole_steps(built=True)) == (5, 0)


def test_several_optimizers_are_one_loop() -> None:
    """Two networks trained in turn: the step is that of the one that steps most."""
    log = log_with()
    train(log, 100)
    log.opts = sorted([*log.opts, *((t - 0.001, t - 0.001, 2) for t, _, _ in log.opts[::5])])
    assert measured(log).units_per_s() == pytest.approx(400.0)


def test_a_full_queue_is_not_taken_for_speed() -> None:
    """The first workers x prefetch batches came from a queue filled while the program started."""
    log = log_with(workers=2, prefetch=8)
    now = train(log, 18, load=0.001, work=0.002)
    train(log, 200, start=now, load=0.018, work=0.002)
    found = measured(log, {"measure_s": 1.0, "min_steps": 10})
    assert found.units_per_s() == pytest.approx(4 / 0.02, rel=0.01)
    assert found.count % 2 == 0


def test_slow_first_steps_are_warm_up() -> None:
    """Compilation and the like are detected, not assumed."""
    log = log_with()
    now = train(log, 15, work=0.2)
    train(log, 200, start=now)
    assert measured(log).units_per_s() == pytest.approx(400.0)


def test_short_epochs_are_measured_whole() -> None:
    """The pause between two epochs is paid for by each."""
    log, now = log_with(), 0.0
    for _ in range(12):
        now = train(log, 20, start=now)
        log.nexts.append((now, now, 0, EXHAUSTED, True))
        now += 0.1
    found = measured(log)
    assert found.units_per_s() == pytest.approx(20 * 4 / (20 * 0.01 + 0.1), rel=0.001)


def test_long_epochs_of_few_steps_do_not_run_to_the_end() -> None:
    """No epoch holds the steps a window wants, so whole epochs make it up."""
    log, now = log_with(), 0.0
    for _ in range(5):
        now = train(log, 8, start=now, work=0.09, load=0.01)
        log.nexts.append((now, now, 0, EXHAUSTED, True))
        now += 0.2
    ledger = steps.read(log, PLAN)
    assert ledger is not None
    found, need = window.find(log, ledger, PLAN)
    assert need is None
    assert found is not None
    assert found.units_per_s() == pytest.approx(8 * 4 / (8 * 0.1 + 0.2), rel=0.001)


def test_a_few_steps_are_enough_where_each_takes_long() -> None:
    log = log_with()
    train(log, 9, work=1.9, load=0.1)
    assert measured(log).units_per_s() == pytest.approx(2.0)


def test_a_window_that_is_not_full_says_when_to_look_again() -> None:
    """Near the end, neither much too early nor too late."""
    log = log_with()
    train(log, 30)
    ledger = steps.read(log, PLAN)
    assert ledger is not None
    _, need = window.find(log, ledger, PLAN)
    assert need is not None
    assert 0.1 < need.seconds < 0.5


def test_a_short_program_uses_what_there_is() -> None:
    """And says that its warm-up was cut short."""
    log = log_with(workers=4, prefetch=4)
    train(log, 12)
    found = measured(log, {"measure_s": 3.0, "min_steps": 20}, ended=True)
    assert found.units_per_s() == pytest.approx(400.0)
    assert "ended by itself" in found.notes[0]


def sampler(log: Log, batches: int, forwards: int, *, batch: float, pause: float) -> float:
    now = 0.0
    for _ in range(batches):
        log.nexts.append((now, now + pause, 0, batch, True))
        now += pause
        for _ in range(forwards):
            log.forwards.append((now, now + 0.01, 0, batch, False))
            now += 0.01
    return now


def test_a_sampler_pays_for_its_pauses() -> None:
    """Stopped inside a batch, it knows the pause from the batch before."""
    log = log_with()
    sampler(log, 3, 100, batch=2, pause=0.5)
    found = measured(log, {"measure_s": 0.4, "min_steps": 10})
    assert found.ledger.forwards_per_unit == 100
    assert found.units_per_s() == pytest.approx(2 / 1.5, rel=0.01)


def test_a_sampler_waits_for_a_whole_batch() -> None:
    """Unless the forwards per unit are known."""
    log = log_with()
    sampler(log, 1, 400, batch=2, pause=0.1)
    ledger = steps.read(log, PLAN)
    assert ledger is not None
    assert window.find(log, ledger, PLAN)[1] is not None
    found = measured(log, {**PLAN, "forwards_per_unit": 1000.0})
    assert found.units_per_s() == pytest.approx(2 / 10, rel=0.01)


def test_forwards_per_unit_do_not_depend_on_how_a_batch_is_split() -> None:
    """Four items one by one, or all at once with the guidance doubled: each has its own share."""
    split, doubled = log_with(), log_with()
    now = 0.0
    for _ in range(8):
        split.nexts.append((now, now, 0, 4.0, True))
        doubled.nexts.append((now, now, 0, 4.0, True))
        for number in range(80):
            split.forwards.append((now, now + 0.01, 0, 1.0, False))
            if number % 4 == 0:
                doubled.forwards.append((now, now + 0.01, 0, 8.0, False))
            now += 0.01
    assert measured(split).ledger.forwards_per_unit == 20
    assert measured(doubled).ledger.forwards_per_unit == 20


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([*range(9, -1, -1)] * 3, [10, 20]),
        ([v for v in range(9, -1, -1) for _ in (0, 1)] * 2, [20]),
        ([*range(20)], []),
        ([1.0] * 30, None),
        ([0, 1] * 20, None),
        ([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3], None),
    ],
    ids=["timesteps", "guidance in two calls", "one way only", "constant", "flag", "noise"],
)
def test_a_number_that_jumps_back(values: list[float], found: list[int] | None) -> None:
    assert cycles.jumps([float(value) for value in values]) == found


def test_loops_with_few_forwards_are_watched_now_and_then() -> None:
    """All at first, then one batch in sixteen; a sampler's forwards always."""
    log, rota = log_with(), Rota()
    few = []
    for _ in range(96):
        few.append(rota.turn(0, log))
        log.forwards.append((0.0, 0.0, 0, 1.0, True))
    assert all(few[:31])
    assert sum(few[32:]) == 4
    many = Rota()
    log.forwards.clear()
    for _ in range(96):
        assert many.turn(0, log)
        log.forwards.extend([(0.0, 0.0, 0, 1.0, True)] * 5)


# --- facts ----------------------------------------------------------------------------------


class Overwritten:
    """A loss in memory that a CUDA graph has used again."""

    def item(self) -> float:
        msg = "accessing tensor output of CUDAGraphs that has been overwritten"
        raise RuntimeError(msg)


def test_a_loss_that_cannot_be_read_takes_no_other_along(tmp_path: Path) -> None:
    """It is left out, and noted."""
    session = Session({"records": str(tmp_path)})
    session.losses = [torch.tensor(2.0), Overwritten(), torch.tensor(1.0)]
    assert observe.loss_values(session) == [2.0, 1.0]
    assert "overwritten" in session.notes[0]


# --- the device's clock ---------------------------------------------------------------------


class Device:
    """A CUDA stream whose work takes so long for each event queued, on a clock of its own."""

    def __init__(self) -> None:
        self.busy_until = 0.0
        self.work_ms = 10.0

    def is_current_stream_capturing(self) -> bool:
        return False

    def current_stream(self, card: int) -> None:
        assert card == 0

    def Event(self, *, enable_timing: bool) -> SimpleNamespace:
        assert enable_timing
        event = SimpleNamespace(at=0.0)

        def record(stream: None) -> None:
            self.busy_until += self.work_ms
            event.at = self.busy_until

        event.record = record
        event.synchronize = lambda: None
        event.elapsed_time = lambda later: later.at - event.at
        return event


def test_the_devices_own_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host queued 20 steps in 40 ms, the device took 10 ms for each."""
    stream = Device()
    device = clock.DeviceClock(SimpleNamespace(cuda=stream), card=0)
    hosts = [0.002 * number for number in range(20)]
    for host in hosts:
        device.mark(host)
    stream.work_ms = 0.0
    monkeypatch.setattr(clock.time, "perf_counter", lambda: 0.2)
    device.read()
    done = [device.done(host) for host in hosts]
    gaps = [b - a for a, b in itertools.pairwise(done)]
    assert gaps == pytest.approx([0.01] * 19)
    assert done[-1] == pytest.approx(0.2)
    assert all(when >= host for when, host in zip(done, hosts, strict=True))


def test_parts_cover_the_window_and_count_every_unit() -> None:
    """Of a tenth of a second and more, one after another, without a gap."""
    log = log_with()
    train(log, 200)
    found = measured(log, {"measure_s": 1.0, "min_steps": 10})
    parts = found.parts(1)
    assert (parts[0][0], parts[-1][1]) == (found.start, found.end)
    assert [a[1] for a in parts[:-1]] == [b[0] for b in parts[1:]]
    assert sum(units for _, _, units, _ in parts) == 4.0 * found.count
    assert all(end - start >= 0.1 for start, end, _, _ in parts)
    assert len(parts) >= 0.8 * found.seconds / window.PART_S


def test_parts_are_whole_cycles_and_not_too_many() -> None:
    """Workers hand over their batches in bursts; a long window has longer parts."""
    log = log_with()
    train(log, 4000)
    found = measured(log, {"measure_s": 38.0, "min_steps": 10})
    parts = found.parts(3)
    assert len(parts) <= window.PARTS + 1
    assert all(round(units / 4.0) % 3 == 0 for _, _, units, _ in parts[:-1])
    assert found.parts(10_000) == [(found.start, found.end, 4.0 * found.count, 0)]


def test_parts_tell_in_which_of_them_an_epoch_begins() -> None:
    """Its pause weighs as much as it does in the whole window."""
    log = log_with()
    now = 0.0
    for _ in range(6):
        now = train(log, 30, start=now)
        log.nexts.append((now, now + 0.05, 0, EXHAUSTED, True))
        now += 0.05
    found = measured(log, {"measure_s": 1.0, "min_steps": 10}, ended=True)
    assert sum(marks for *_, marks in found.parts(1)) == sum(
        found.first <= mark < found.last for mark in found.ledger.marks
    )
