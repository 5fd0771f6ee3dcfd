"""The ways to a record: base against head, saved runs, past sessions, head against itself."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from advisor.errors import StateUnusableError, UsageError
from advisor.gate import (
    accepted,
    allowances,
    attribution,
    base,
    bisect,
    builds,
    calibrate,
    history,
    replay,
)
from advisor.gate.program import choose, why_not_comparable
from advisor.gate.records import HostEntry
from advisor.gate.workbench import (
    decided,
    machine_to_itself,
    measured,
    open_session,
    set_up,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.gate.entries import Variant
    from advisor.gate.options import Options
    from advisor.gate.records import GateRecord, Mode
    from advisor.gate.workbench import Place

SETTLED = ("statistic", "limits", "own_figures", "accepted")
"""Inputs that were settled before saved runs were made; all others are asked anew."""
CALIBRATION_PAIRS = 12
HISTORY_PAIRS = 2
"""Pairs of head with itself that make one session of the history: four processes."""


def ab(asked: Options, place: Place) -> GateRecord:
    """Interleaved pairs of fresh processes of the merge-base and of the checkout."""
    head = base.head_checkout(place.cwd)
    programs = choose(head, asked.workloads, asked.command)
    revision = base.base_revision(head, asked.base_ref)
    with (
        machine_to_itself(asked, place) as (engine, host),
        builds.checkouts(head, revision, asked.links, asked.rebuilds) as arms,
    ):
        other = arms["base"][0]
        inputs = allowances.of_base(asked.inputs, other, [program.name for program in programs])
        let_pass = accepted.find(asked.accept_label, other, head, os.environ)
        inputs = inputs.model_copy(update={"accepted": list(let_pass.accepted)})
        asked = replace(asked, inputs=inputs)
        session = open_session(asked, place, arms, programs, engine, host)
        for program in programs:
            session.close(program.name, no_baseline=why_not_comparable(program, other))
        set_up(asked, place, session)
        record = measured(session, host, "ab")
        record = record.model_copy(update={"notes": [*record.notes, *let_pass.notes]})
        if record.verdict != "regression":
            return record
        return record.model_copy(update={"attribution": attribution.of_red(session, record)})


def replay_saved(asked: Options, _place: Place) -> GateRecord:
    """Decide again from gate.json, or from pytest-benchmark JSON; measures nothing."""
    if asked.replay and (asked.base_runs or asked.head_runs):
        msg = "--replay and --base-runs exclude each other. Give one kind of saved runs."
        raise UsageError(msg)
    if asked.base_runs or asked.head_runs:
        program = replay.from_benchmarks(asked.base_runs, asked.head_runs)
        return decided([program], asked.inputs, HostEntry(), "replay")
    if not asked.replay:
        msg = "--mode replay needs saved runs: --replay gate.json, or --base-runs and --head-runs."
        raise UsageError(msg)
    found = replay.saved(asked.replay)
    first = found[0]
    programs = [program for record in found for program in record.programs]
    kept = {name: getattr(first.inputs, name) for name in SETTLED}
    inputs = asked.inputs.model_copy(update=kept)
    record = decided(programs, inputs, first.host, "replay")
    said = f"the saved verdict was: {', '.join(saved.verdict for saved in found)}"
    return record.model_copy(
        update={"base": first.base, "head": first.head, "notes": [*record.notes, said]}
    )


def with_history(asked: Options, place: Place) -> GateRecord:
    """A few processes of head, compared with past sessions, then appended to them."""
    head = base.head_checkout(place.cwd)
    programs = choose(head, asked.workloads, asked.command)
    with history.held(asked.history):  # what cannot be read or written is said before all else
        history.read(asked.history)
        claimed = history.claim(asked.history)
    with machine_to_itself(asked, place) as (engine, host):
        session = open_session(asked, place, _alone(head), programs, engine, host)
        session.fixed_pairs, session.may_stand_in = HISTORY_PAIRS, False
        set_up(asked, place, session)
        record = _of_head_alone(measured(session, host, "history"))
    if record.verdict in {"error", "invalid"}:
        return record
    verdicts = []
    with history.held(asked.history):
        past = history.read(asked.history)  # others may have added to it since
        for entry in record.programs:
            found, past = history.judge(past, entry, record)
            verdicts += found
        claimed.write(asked.history, history.dump(past))
    return history.with_verdicts(record, verdicts)


def _alone(head: base.Checkout) -> dict[Variant, tuple[base.Checkout, ...]]:
    """Head in both arms."""
    return {"base": (head,), "head": (head,)}


def _of_head_alone(record: GateRecord) -> GateRecord:
    """Both arms were head: what failed in either place is head's failure, not a missing base."""
    if record.verdict != "no-baseline":
        return record
    return record.model_copy(update={"verdict": "error"})


def calibrated(asked: Options, place: Place) -> GateRecord:
    """Pairs of head against itself: what this runner can prove."""
    head = base.head_checkout(place.cwd)
    programs = choose(head, asked.workloads, asked.command)
    with machine_to_itself(asked, place) as (engine, host):
        session = open_session(asked, place, _alone(head), programs, engine, host)
        session.fixed_pairs = CALIBRATION_PAIRS
        set_up(asked, place, session)
        record = _of_head_alone(measured(session, host, "calibrate"))
    if record.verdict in {"error", "invalid"}:
        return record
    found = []
    for program in programs:
        entry = calibrate.calibrate(session.programs[program.name], record.inputs)
        if entry is not None:
            found.append(entry)
            try:
                calibrate.keep(calibrate.kept_at(), host.key, program.definition, entry.statistic)
            except StateUnusableError as problem:
                place.say(str(problem))
    record = record.model_copy(update={"calibration": found})
    if record.verdict == "regression":
        reason = "equal runs came out as a regression: this runner cannot be measured on"
        record = record.model_copy(update={"verdict": "invalid", "reason": reason})
    return record


MODES: dict[Mode, Callable[[Options, Place], GateRecord]] = {
    "ab": ab,
    "replay": replay_saved,
    "history": with_history,
    "calibrate": calibrated,
    "bisect": bisect.search,
}
