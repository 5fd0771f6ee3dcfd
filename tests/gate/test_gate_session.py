"""Pairs on a machine that others use too: which count, in which order, and what is said of it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from advisor.executor import interleave
from advisor.gate import report, workbench
from advisor.gate.base import Checkout
from advisor.gate.measure import Bench
from advisor.gate.program import Program
from advisor.gate.records import HostEntry, Inputs, Revision
from advisor.gate.session import Session
from advisor.model import Disturbance, Neighbour, Run
from tests.runs import a_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from advisor.gate.entries import PairEntry
    from advisor.gate.records import GateRecord
    from advisor.model import Failure, Machine, Trial

QUIET = Disturbance(disturbed=False, others_cpus=0.02, waited_cpus=0.0, clean_share=1.0)
TWO = ("train", "infer")


def busy(cpus: float, name: str = "firefox") -> Disturbance:
    return Disturbance(
        disturbed=True,
        others_cpus=cpus,
        waited_cpus=cpus / 2,
        clean_share=0.0,
        who=(Neighbour(name=name, cpus=cpus),),
    )


@dataclass
class Host:
    """An engine on which head is a little slower, and others do what the script says."""

    script: Callable[[str, int], Disturbance]
    """Given the arm, and how many timed runs of it there were before."""
    asked_s: list[float] = field(default_factory=list)
    """How long each wait for a quiet moment may take."""
    done: list[tuple[str, str]] = field(default_factory=list)
    """Program and arm of each process."""

    def wait_until_quiet(self, limit_s: float) -> tuple[Neighbour, ...]:
        self.asked_s.append(limit_s)
        return ()

    def run(self, trial: Trial) -> Run | Failure:
        process = (trial.command[0], trial.label)
        turn = self.done.count(process)  # 0 is the warm-up
        self.done.append(process)
        assert len(self.asked_s) == len(self.done), "no look before the process"
        return a_run(
            trial_id=trial.id,
            purpose=trial.purpose,
            label=trial.label,
            units=100.0,
            units_per_s={"base": 100.0, "head": 99.9}[trial.label] + turn % 7 / 100,
            disturbance=self.script(trial.label, turn - 1) if turn else QUIET,
        )

    def machine(self) -> Machine:
        raise NotImplementedError


@pytest.fixture
def gate(tmp_path: Path):
    """Runs a session on a host; gives its record, what was said, and the session."""

    def make(
        script: Callable[[str, int], Disturbance], names: tuple[str, ...] = ("train",), **more
    ) -> tuple[GateRecord, list[str], Host]:
        host = Host(script)
        said: list[str] = []
        checkout = Checkout(top=tmp_path, cwd=tmp_path, revision=Revision())
        bench = Bench(
            engine=host,
            builds={"base": (checkout,), "head": (checkout,)},
            scratch=tmp_path,
            device=lambda: None,
        )
        programs = tuple(Program(name=name, command=f"{name} x") for name in names)
        session = Session(bench=bench, asked=programs, inputs=Inputs(), say=said.append, **more)
        return workbench.measured(session, HostEntry(cpus=2), "ab"), said, host

    return make


def orders(record: GateRecord, program: int = 0, *, discarded: bool = False) -> list[str]:
    pairs = record.programs[program].pairs
    return [pair.order for pair in pairs if (pair.discarded is not None) == discarded]


def only(n: int, cpus: float, arm: str = "head") -> Callable[[str, int], Disturbance]:
    """Others disturb the n-th timed run of one arm."""
    return lambda name, turn: busy(cpus) if (name, turn) == (arm, n) else QUIET


@pytest.mark.parametrize("arm", ["base", "head"])
def test_a_disturbed_pair_is_discarded_whole_and_measured_again(gate, arm: str) -> None:
    """Both arms run again, in the same order: the slow half alone is never replaced."""
    record, said, _ = gate(only(1, 0.9, arm))
    pairs: list[PairEntry] = record.programs[0].pairs
    assert [pair.discarded for pair in pairs[:1] + pairs[2:]] == [None] * 5
    assert pairs[1].discarded == f"others held 0.9 CPUs (firefox 0.9) during {arm}"
    assert pairs[2].order == pairs[1].order
    assert (record.verdict, record.pairs, record.discarded_pairs) == ("pass", 5, 1)
    assert record.validity == "verified"
    assert any("pair 2 (head first) discarded: others held" in line for line in said)


def test_the_order_flips_only_with_pairs_that_count(gate) -> None:
    """Two discards in a row do not shift the balance of the orders."""
    record, _, _ = gate(lambda arm, turn: busy(1.0) if turn in (1, 2) else QUIET)
    assert orders(record) == (["base first", "head first"] * 3)[:5]
    assert orders(record, discarded=True) == ["head first", "head first"]


def test_programs_keep_orders_of_their_own(gate) -> None:
    """Programs are measured in turn; a discard of one does not move the other."""
    record, _, _ = gate(lambda arm, turn: QUIET, TWO)
    for program in (0, 1):
        found = orders(record, program)
        assert found == [("base first", "head first")[n % 2] for n in range(len(found))]
    assert record.verdict == "pass"


def test_where_it_stays_busy_pairs_disturbed_alike_stand_in_and_it_is_said(gate) -> None:
    """There is an answer, its orders are balanced, and its first lines say on what it rests."""
    record, said, _ = gate(lambda arm, turn: busy(0.9 if arm == "base" else 1.1, "stress"))
    assert (record.verdict, record.pairs, record.discarded_pairs) == ("pass", 5, 2)
    assert orders(record) == (["base first", "head first"] * 3)[:5]
    assert record.validity == (
        "busy: others held 1.0 CPUs (stress 1.1); 5 of 5 pairs that count stand in, their arms "
        "disturbed alike"
    )
    assert record.validity in report.lines(record)
    assert record.validity in report.comment(record)
    assert "stands in: others held 0.9 CPUs (stress 0.9) during base" in report.markdown(record)
    assert any("(stands in: others held" in line for line in said)


def test_arms_disturbed_unlike_never_stand_in(gate) -> None:
    """A gate whose pairs are all crooked says nothing about the code."""
    record, _, _ = gate(lambda arm, turn: busy(1.5) if arm == "head" else QUIET)
    assert (record.verdict, record.discarded_pairs) == ("invalid", 25)
    assert "others held 1.5 CPUs (firefox 1.5) during head" in record.reason


def test_rates_that_are_kept_for_other_days_have_no_stand_ins(gate) -> None:
    """Disturbed alike is fair to a ratio, not to a history of rates."""
    record, _, _ = gate(lambda arm, turn: busy(1.0), fixed_pairs=2, may_stand_in=False)
    assert record.verdict == "invalid"


def test_a_host_that_does_not_tell_is_unverified_and_discards_nothing(gate) -> None:
    """None is not quiet."""
    record, _, _ = gate(lambda arm, turn: Disturbance())
    assert (record.verdict, record.discarded_pairs) == ("pass", 0)
    assert (
        record.validity == "unverified: it cannot be told whether others were at work on the CPUs"
    )


def test_before_each_process_it_waits_a_bounded_time_for_others(gate) -> None:
    """Warm-ups too; the fake engine fails a process that was not looked before."""
    record, _, host = gate(lambda arm, turn: QUIET)
    assert len(host.asked_s) == 2 + 2 * len(record.programs[0].pairs)
    assert 0 < min(host.asked_s) <= max(host.asked_s) <= 10


def test_the_order_of_pairs_is_what_the_one_interleaving_says(gate, monkeypatch) -> None:
    """Where that function never flips, no pair of the gate does: it has no order of its own."""

    def never_flips(
        arms: tuple[str, ...], run: Callable[[str, int], object], **_: object
    ) -> Iterator[interleave.Round[object]]:
        number = 0
        while True:
            number += 1
            runs = {arm: run(arm, number) for arm in arms}
            yield interleave.Round(number=number, order=tuple(arms), runs=runs)

    for name, module in list(sys.modules.items()):
        if name.startswith("advisor."):
            for bound, value in list(vars(module).items()):
                if value is interleave.interleaved and module is not interleave:
                    monkeypatch.setattr(module, bound, never_flips)
    record, _, _ = gate(lambda arm, turn: QUIET)
    assert orders(record) == ["base first"] * 5
