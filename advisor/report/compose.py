"""From a finished search to report.json; every sentence of it is written in this room."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from advisor import __version__, numbers
from advisor.executor.comparison import AFTER, chained, neighbours
from advisor.executor.program import COMMAND_LINE
from advisor.model import Candidate
from advisor.report import sentences, surroundings
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
from advisor.report.model import Bottleneck, ChangeEntry, QualityPoint, Report
from advisor.report.outcome import (
    TuningResult,
    chain_of,
    class_of,
    gained_by,
    mended,
    quality_proven,
    reason,
    traded,
    unit_of,
    verdict_of,
)
from advisor.report.sides import runs_of, sides
from advisor.tuner import results
from advisor.tuner.proof import proven_proofs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from advisor.machine.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
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


def optimize_report(found: TuningResult, asked: RunInfo) -> Report:
    """The whole report of one `optimize`."""
    now, winner, objective = found.standing, found.winner, found.standing.facts.objective
    chain = chain_of(found)
    free = next((p for p in chain if not traded(p)), None)
    on_top = [proof for proof in chain if traded(proof)]
    whole = gained_by(found)
    before, after = sides(now, found.comparisons, winner)
    runs = [a.run for a in found.attempts if a.run is not None and not a.reused]
    by_id = {attempt.id: attempt for attempt in found.attempts}
    return Report(
        verdict=verdict_of(found),
        busy=busy(found),
        isolation=next(
            (surroundings.ISOLATION[run.isolation] for run in runs if run.isolation), None
        ),
        unisolated=surroundings.unisolated(runs),
        reason=reason(found),
        gain=gain_entry(whole),
        gain_free=gain_entry(free.interval(objective)) if free else None,
        gain_quality=gain_entry(chained(on_top, objective)),
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
        unfinished=found.unfinished,
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
                low=j.low,
                high=j.high,
                runs=j.runs,
                items=j.items,
                stage=j.stage,
                within=j.within,
            )
            for label, j in now.quality.judgements
            if j.reference is not None and j.limit is not None
        ],
        quality_proven=quality_proven(found),
        comparisons=[
            comparison_entry(each, objective)
            for each in found.comparisons
            if each.ab_test.purpose != "quality"
        ],
        safe=now.facts.safe,
        noise_band=max(now.noise, surroundings.between_equal_runs(found.attempts) or 0.0) or None,
        tie=now.band,
        smallest_gain=now.facts.smallest_gain,
        objective=objective.name,  # type: ignore[arg-type]
        objective_unit=objective.unit(unit_of(found), numbers.plural(unit_of(found))),
        constraints=[each.text for each in objective.constraints],
        mended=mended(found),
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
        files_created=surroundings.left_behind(found.attempts),
    )


def busy(found: TuningResult) -> str:
    """How quiet the machine was while the proof was measured; the search where there is none."""
    proofs = found.standing.proofs
    runs = [run for proof in proofs for run in (*proof.runs("before"), *proof.runs("after"))]
    if not runs:
        runs = [a.run for a in found.attempts if a.run is not None and not a.reused]
    if not runs:
        return surroundings.crowded(found.crowd)
    everything = [a.run for a in found.attempts if a.run is not None and not a.reused]
    stood_in = any(each.stood_in for each in proofs or found.advice)
    return surroundings.busy(runs, neighbours(everything), found.machine.cpus, stood_in=stood_in)


# --- parts --------------------------------------------------------------------------------


def bottleneck(found: TuningResult, candidate: Candidate, asked: RunInfo) -> Bottleneck | None:
    """Where the time of one configuration goes; None with fewer than two runs of it."""
    now = found.standing
    runs: Sequence[object] = now.originals if not candidate.changes else ()
    measured = [*runs, *(r for r in runs_of(now, found.comparisons, candidate) if r not in runs)]
    told = diagnose(
        measured,  # type: ignore[arg-type]
        larger_batch=larger_batch(found) if not candidate.changes else None,
        profile=asked.target.profile if asked.target.present else None,
    )
    if told is None:
        return None
    return Bottleneck(name=told.name, sentence=told.sentence, evidence=list(told.evidence))


def larger_batch(found: TuningResult) -> LargerBatch | None:
    """What a larger batch alone was proven to gain over the original."""
    for proof in proven_proofs(found.standing)[:1]:
        changes = proof.ab_test.after.variant.candidate.changes
        runs, interval = proof.runs("after"), proof.interval(found.standing.facts.objective)
        kinds = {change.kind for change in changes}
        if kinds <= {"batch_size", "grad_accum"} and interval and runs and runs[0].effects.batch:
            return LargerBatch(batch=runs[0].effects.batch, gain=interval)
    return None


def tuned_command(found: TuningResult) -> str | None:
    """The command with its own knobs changed, if any of them was."""
    if not any(c.document == COMMAND_LINE for c in found.winner.changes):
        return None
    return shlex.join(found.program.argv(found.winner))


def how_to_run(found: TuningResult, asked: RunInfo) -> str:
    """The command that uses the result."""
    command = tuned_command(found) or asked.command
    if asked.output not in {None, asked.config}:
        return command.replace(str(asked.config), str(asked.output))
    return command


def notes(found: TuningResult, asked: RunInfo) -> list[str]:
    """What a reader must know before trusting the figures."""
    now = found.standing
    told = [
        f"Found by experiment: {sentences.followed(each, found.program.unit)}"
        for source in now.facts.sources
        for each in source.findings.followed
    ]
    if not now.facts.has_gpu:
        told.append(
            "There is no GPU here: all of this was measured on this CPU, and says nothing about a "
            "GPU."
        )
    if now.batch_at is not None:
        told.append(sentences.batch_place(now.batch_at))
    if slow := sentences.slow_starts(now.starts):
        told.append(slow)
    if asked.target.note and asked.target.profile is not None:
        told.append(asked.target.note)
    sources = {
        a.run.rate_source.partition(" (")[0]
        for a in found.attempts
        if a.run is not None and a.request.purpose == "confirm"
    }
    told += [f"How the rate was counted: {source}." for source in sorted(sources)]
    told += filter(None, map(sentences.collapsed, now.proofs))
    if found.history_set_aside:
        told.append(
            "Earlier measurements were set aside: the same original now runs at another speed."
        )
    if any(j.stage == "confirmed" for _, j in now.quality.judgements):
        told.append(
            "Quality: what was chosen with some seeds was confirmed or refused with others; bounds "
            "are 95 %, and the wider of those over the runs and over the items of a run."
        )
    if now.quality.judgements and now.facts.workload.quality_proof == "one-run":
        told.append(
            "Quality is not proven: quality-proof is one-run, so each value is of one run, which "
            "shows that this run was inside its limit and nothing of any other."
        )
    proofs = (*now.proofs, *(p.outcome for p in now.proposals if p.outcome is not None))
    after = [run for proof in proofs for run in proof.runs(AFTER)]
    if unread := results.unread(now.originals, after):
        told.append(sentences.unread(unread))
    without = [p.title for p in now.proposals if p.outcome is not None]
    without = [title for title in without if title not in {a.title for a in found.advice}]
    if without:
        told.append("Tried, and not proven to gain: " + ", ".join(without))
    return told
