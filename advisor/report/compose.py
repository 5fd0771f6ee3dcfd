"""From a finished search to report.json; every sentence of it is written in this room."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from advisor import __version__
from advisor.experiments.comparison import chained, neighbours
from advisor.experiments.program import COMMAND_LINE
from advisor.model import Candidate
from advisor.report import numbers, sentences
from advisor.report.bottleneck import LargerBatch, diagnose
from advisor.report.entries import (
    advice_entry,
    comparison_entry,
    decision_entry,
    gain_entry,
    machine_entry,
    target_entry,
    trial_entry,
)
from advisor.report.model import Bottleneck, ChangeEntry, OptimizeVerdict, QualityPoint, Report
from advisor.report.sides import runs_of, sides
from advisor.strategy.journey import SPARE
from advisor.strategy.proof import proven_proofs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from advisor.experiments.attempts import Attempt
    from advisor.experiments.comparison import Comparison
    from advisor.experiments.program import Program
    from advisor.machine.target import Target
    from advisor.model import (
        Advice,
        Change,
        Decision,
        Interval,
        KnobClass,
        Machine,
        Neighbour,
    )
    from advisor.strategy.standing import Standing, Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the call was, for the parts of the report that repeat it."""

    config: Path | None
    report: Path
    output: Path | None
    """Where the tuned config was written, if it was."""
    entry: Path | None
    """Where the tuned command was."""
    rewritten: tuple[Path, ...]
    """Those of both that were there before, and can be given back."""
    dry_run: bool
    workload: str | None
    command: str
    cwd: Path
    target: Target
    price_per_hour: float | None
    wall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a search ended, and what is written."""

    stop: Stop | None
    """None: interrupted before the strategy stopped."""
    standing: Standing
    attempts: tuple[Attempt, ...]
    comparisons: tuple[Comparison, ...]
    winner: Candidate
    decisions: tuple[Decision, ...]
    advice: tuple[Advice, ...]
    program: Program
    machine: Machine
    diff: str
    history_set_aside: bool = False
    crowd: tuple[Neighbour, ...] = ()
    """Who was at work when a process had to begin beside others."""

    @property
    def interrupted(self) -> bool:
        return self.stop is None

    @property
    def what(self) -> str:
        """What is tuned, in a word."""
        return "command" if self.program.config is None else "config"


def unit_of(found: Outcome) -> str:
    """What was counted: the workload's unit, or tokens where the samples could not be told."""
    originals = found.standing.originals
    return originals[-1].unit if originals else found.program.unit


def optimize_report(found: Outcome, asked: Asked) -> Report:
    """The whole report of one `optimize`."""
    now, winner, objective = found.standing, found.winner, found.standing.facts.objective
    chain = chain_of(found)
    free = next((p for p in chain if not traded(p)), None)
    on_top = next((p for p in chain if traded(p)), None)
    whole = gained_by(found)
    before, after = sides(now, winner)
    runs = [a.run for a in found.attempts if a.run is not None and not a.reused]
    by_id = {attempt.id: attempt for attempt in found.attempts}
    return Report(
        verdict=verdict_of(found),
        busy=busy(found),
        isolation=next((sentences.ISOLATION[run.isolation] for run in runs if run.isolation), None),
        unisolated=sentences.unisolated(runs),
        reason=reason(found),
        gain=gain_entry(whole),
        gain_free=gain_entry(free.interval(objective)) if free else None,
        gain_quality=gain_entry(on_top.interval(objective)) if on_top else None,
        unit=unit_of(found),
        before=before,
        after=after,
        changes=[
            ChangeEntry.model_validate(
                {
                    "path": c.path,
                    "from": c.old,
                    "to": c.new,
                    "class": class_of(c, now),
                    "kind": c.kind,
                    "document": c.document,
                }
            )
            for c in winner.changes
        ],
        runs=sum(not attempt.reused for attempt in found.attempts),
        wall_s=round(asked.wall_s, 1),
        config=str(asked.config) if asked.config is not None else "",
        report=str(asked.report),
        tool_version=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        dry_run=asked.dry_run,
        workload=asked.workload,
        phase=now.facts.workload.phase,
        command=asked.command,
        cwd=str(asked.cwd),
        tuned_command=tuned_command(found),
        written=", ".join(str(path) for path in (asked.output, asked.entry) if path) or None,
        machine=machine_entry(found.machine),
        target=target_entry(asked.target, now.facts.memory_limit_gib),
        bottleneck_before=bottleneck(found, Candidate(), asked),
        bottleneck_after=bottleneck(found, winner, asked) if winner.changes else None,
        decisions=[decision_entry(decision, by_id) for decision in found.decisions],
        quality=[
            QualityPoint(
                measure=j.measure,
                candidate=label,
                value=j.value,
                reference=j.reference,
                limit=j.limit,
                within=j.within,
            )
            for label, j in now.quality.judgements
        ],
        comparisons=[
            comparison_entry(each, objective)
            for each in found.comparisons
            if each.contest.purpose != "quality"
        ],
        tier=now.facts.workload.tier,
        noise_band=now.noise or None,
        smallest_gain=now.facts.smallest_gain,
        price_per_hour=asked.price_per_hour,
        trials=[trial_entry(attempt) for attempt in found.attempts],
        skipped=[sentences.skipped(entry) for entry in now.skipped],
        diff=found.diff,
        how_to_run=how_to_run(found, asked),
        how_to_revert="\n".join(
            f"gpu-advisor revert {shlex.quote(str(path))}" for path in asked.rewritten
        ),
        advice=[advice_entry(advice) for advice in found.advice],
        notes=notes(found, asked),
        files_created=sorted({p for a in found.attempts for p in a.result.files_created}),
    )


# --- verdict ------------------------------------------------------------------------------


def chain_of(found: Outcome) -> tuple[Comparison, ...]:
    """The proofs that lead from the original to the winner; none where nothing is written."""
    return proven_proofs(found.standing) if found.winner.changes else ()


def class_of(change: Change, now: Standing) -> KnobClass:
    """A training knob by its name is free in a program that was seen not to train."""
    trains = not now.originals or now.trains
    return "free" if change.knob_class == "training" and not trains else change.knob_class


def traded(proof: Comparison) -> bool:
    """Whether what the proof adds may change results."""
    old, new = proof.contest.before.arm.candidate, proof.contest.after.arm.candidate
    return old.only("numeric", "quality").key != new.only("numeric", "quality").key


def gained_by(found: Outcome) -> Interval | None:
    """Gain of everything that is written, over the original."""
    chain = chain_of(found)
    if not chain:
        return None
    second = chain[1] if len(chain) > 1 else None
    return chained(chain[0], second, found.standing.facts.objective)


def verdict_of(found: Outcome) -> OptimizeVerdict:
    """`unchanged` only where candidates ran and lost, or there was none to run."""
    if found.interrupted:
        return "partial"
    if found.winner.changes:
        return "improved"
    assert found.stop is not None
    left_out = any(entry.matters for entry in found.standing.skipped)
    return "partial" if left_out or found.stop.reason == "budget-too-small" else "unchanged"


def reason(found: Outcome) -> str:
    """Why the verdict is what it is."""
    now, stop = found.standing, found.stop
    if stop is None:
        processes = sum(not attempt.reused for attempt in found.attempts)
        return (
            f"Interrupted after {processes} processes; the {found.what} is untouched, and "
            "the next call goes on from what was measured."
        )
    if stop.reason == "budget-too-small":
        takes = f"takes about {numbers.duration(now.price_s)}"
        if not now.originals:
            takes = "finished no item"
        return (
            f"One process of this program {takes}, so the "
            f"budget of {numbers.duration(now.facts.budget_s)} is too small to try a setting and "
            f"prove it. Call again with --budget {whole_minutes(stop.needed_s or 0.0)}."
        )
    whole = gained_by(found)
    if whole is not None:
        text = f"The tuned {found.what} {sentences.gained(whole, unit_of(found))}."
        if len(now.proofs) > len(chain_of(found)):
            text += " What was not proven on top of it was left out."
        return text
    if now.proofs:
        last = now.proofs[-1]
        if last.failure is not None:
            return (
                f"The best candidate failed while it was being proven ({last.failure.kind}: "
                f"{last.failure.evidence}), so nothing was written."
            )
        found_gain = last.interval(now.facts.objective)
        bounds = ""
        if found_gain is not None and not sentences.too_wide(found_gain):
            bounds = f" (95 % bounds {found_gain.low:.2f} to {found_gain.high:.2f})"
        return (
            f"The best candidate, {last.contest.after.arm.label}, was not proven to gain more "
            f"than {now.facts.smallest_gain:.0%}{bounds}, so the {found.what} stays as it is."
        )
    tried = [a for a in found.attempts if a.ask.purpose == "search" and a.ask.arm.candidate.changes]
    if not tried and any(entry.matters for entry in now.skipped):
        return (
            "The budget was spent before a candidate could run, so nothing is known yet."
            + again(now)
        )
    if not tried:
        return "No setting was found that may be changed without asking you."
    if any(word.outcome == "found" for word in now.settled):
        return (
            "What was faster in the search could not be proven before the budget was spent, so "
            "nothing was written." + again(now)
        )
    what = "that may be written without asking you" if found.advice else "that was tried"
    return f"Nothing {what} is faster by more than {numbers.percent(now.band)}."


def again(now: Standing) -> str:
    """The budget that would have held what this one did not; what was measured is known then."""
    missing_s = max((e.needed_s - e.left_s for e in now.skipped if e.matters), default=0.0)
    needed_s = SPARE * (now.facts.budget_s + missing_s)
    return f" Call again with --budget {whole_minutes(needed_s)}: it goes on from here."


def whole_minutes(seconds: float) -> str:
    """`6m`: a budget as it is typed, rounded up."""
    return f"{int(-(-seconds // 60))}m"


def busy(found: Outcome) -> str:
    """How quiet the machine was while the proof was measured; the search where there is none."""
    proofs = found.standing.proofs
    runs = [run for proof in proofs for run in (*proof.runs("before"), *proof.runs("after"))]
    if not runs:
        runs = [a.run for a in found.attempts if a.run is not None and not a.reused]
    if not runs:
        return sentences.crowded(found.crowd)
    everything = [a.run for a in found.attempts if a.run is not None and not a.reused]
    stood_in = any(proof.stood_in for proof in proofs)
    return sentences.busy(runs, neighbours(everything), found.machine.cpus, stood_in=stood_in)


# --- parts --------------------------------------------------------------------------------


def bottleneck(found: Outcome, candidate: Candidate, asked: Asked) -> Bottleneck | None:
    """Where the time of one configuration goes; None with fewer than two runs of it."""
    now = found.standing
    runs: Sequence[object] = now.originals if not candidate.changes else ()
    measured = [*runs, *(r for r in runs_of(now, candidate) if r not in runs)]
    told = diagnose(
        measured,  # type: ignore[arg-type]
        larger_batch=larger_batch(found) if not candidate.changes else None,
        profile=asked.target.profile if asked.target.present else None,
    )
    if told is None:
        return None
    return Bottleneck(name=told.name, sentence=told.sentence, evidence=list(told.evidence))


def larger_batch(found: Outcome) -> LargerBatch | None:
    """What a larger batch alone was proven to gain over the original."""
    for proof in proven_proofs(found.standing)[:1]:
        changes = proof.contest.after.arm.candidate.changes
        runs, interval = proof.runs("after"), proof.interval(found.standing.facts.objective)
        kinds = {change.kind for change in changes}
        if kinds <= {"batch_size", "grad_accum"} and interval and runs and runs[0].effects.batch:
            return LargerBatch(batch=runs[0].effects.batch, gain=interval)
    return None


def tuned_command(found: Outcome) -> str | None:
    """The command with its own knobs changed, if any of them was."""
    if not any(c.document == COMMAND_LINE for c in found.winner.changes):
        return None
    return shlex.join(found.program.argv(found.winner))


def how_to_run(found: Outcome, asked: Asked) -> str:
    """The command that uses the result."""
    command = tuned_command(found) or asked.command
    if asked.output not in {None, asked.config}:
        return command.replace(str(asked.config), str(asked.output))
    return command


def notes(found: Outcome, asked: Asked) -> list[str]:
    """What a reader must know before trusting the figures."""
    now = found.standing
    told = [
        f"Found by experiment: {sentences.followed(each, found.program.unit)}"
        for source in now.facts.sources
        for each in source.findings.followed
    ]
    if not now.facts.has_gpu:
        told.append(
            "There is no GPU here: this was measured and tuned for this CPU, and says nothing "
            f"about a GPU. {found.machine.gpu_note or ''}".rstrip()
        )
    if asked.target.note and asked.target.profile is not None:
        told.append(asked.target.note)
    sources = {
        a.run.rate_source.partition(" (")[0]
        for a in found.attempts
        if a.run is not None and a.ask.purpose == "confirm"
    }
    told += [f"How the rate was counted: {source}." for source in sorted(sources)]
    if found.history_set_aside:
        told.append(
            "Earlier measurements were set aside: the same original now runs at another speed."
        )
    if now.quality.judgements:
        told.append(
            "Each quality value is of one run of the quality command: it shows that this run was "
            "inside its limit, and does not prove that every run is."
        )
    without = [p.title for p in now.proposals if p.outcome is not None]
    without = [title for title in without if title not in {a.title for a in found.advice}]
    if without:
        told.append("Tried from inside the process, and not proven to gain: " + ", ".join(without))
    return told
