"""From a finished search to report.json: every sentence of the report is decided here."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from advisor import __version__
from advisor.model import Candidate, Decision, Run
from advisor.report.entries import (
    advice_entry,
    decision_entry,
    machine_entry,
    pairs,
    target_entry,
    trial_entry,
)
from advisor.report.model import (
    Bottleneck,
    ChangeEntry,
    Gain,
    OptimizeVerdict,
    QualityPoint,
    Report,
)
from advisor.report.sides import run_of, sides
from advisor.tuning.bottleneck import Diagnosis, diagnose
from advisor.tuning.program import COMMAND_LINE

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.machine.target import Target
    from advisor.tuning.confirm import Confirmation
    from advisor.tuning.search import Search


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the call was, for the parts of the report that repeat it."""

    config: Path
    report: Path
    output: Path
    dry_run: bool
    workload: str | None
    command: str
    cwd: Path
    target: Target
    diff: str
    price_per_hour: float | None
    interrupted: bool
    wall_s: float


def optimize_report(
    search: Search, proof: Confirmation | None, winner: Candidate, asked: Asked
) -> Report:
    """The whole report of one `optimize`; `winner` is what was proven, no changes if nothing."""
    verdict = verdict_of(search, proof, winner, asked)
    before, after = sides(search, proof, winner)
    return Report(
        verdict=verdict,
        reason=reason(search, proof, winner, asked),
        gain=gain(proof, "after" if proof and winner == proof.arms["after"] else "free")
        if winner.changes
        else None,
        gain_free=gain_free(proof, winner),
        gain_quality=gain(proof, "after", over="free")
        if proof and winner == proof.arms["after"]
        else None,
        unit=search.runner.program.unit,
        before=before,
        after=after,
        changes=[
            ChangeEntry.model_validate(
                {
                    "path": c.path,
                    "from": c.old,
                    "to": c.new,
                    "class": c.knob_class,
                    "kind": c.kind,
                    "document": c.document,
                }
            )
            for c in winner.changes
        ],
        runs=search.runner.processes,
        wall_s=round(asked.wall_s, 1),
        config=str(asked.config),
        report=str(asked.report),
        tool_version=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        dry_run=asked.dry_run,
        workload=asked.workload,
        phase=search.workload.phase,
        command=asked.command,
        cwd=str(asked.cwd),
        tuned_command=tuned_command(search, winner),
        written=None if asked.dry_run or not winner.changes else str(asked.output),
        machine=machine_entry(search.machine),
        target=target_entry(asked.target, search.memory_limit_gib),
        bottleneck_before=bottleneck(
            search, search.baseline[0] if search.baseline else None, asked
        ),
        bottleneck_after=bottleneck(search, run_of(proof, winner, search), asked)
        if winner.changes
        else None,
        decisions=[decision_entry(d) for d in settled(search, winner)],
        quality=[
            QualityPoint(
                measure=j.measure,
                candidate=label,
                value=j.value,
                reference=j.reference,
                limit=j.limit,
                within=j.within,
            )
            for label, j in search.judgements
        ],
        pairs=pairs(proof),
        noise_band=search.noise or None,
        smallest_gain=search.smallest_gain,
        price_per_hour=asked.price_per_hour,
        trials=[trial_entry(taken) for taken in search.runner.taken],
        skipped=search.skipped,
        diff=asked.diff,
        how_to_run=how_to_run(search, winner, asked),
        how_to_revert=f"gpu-advisor revert {shlex.quote(str(asked.config))}"
        if winner.changes and not asked.dry_run and asked.output == asked.config
        else "",
        advice=[advice_entry(advice) for advice in search.advice],
        notes=[*search.notes, *asked_notes(search, asked)],
        files_created=sorted(
            {path for taken in search.runner.taken for path in taken.result.files_created}
        ),
    )


# --- verdict ------------------------------------------------------------------------------


def verdict_of(
    search: Search, proof: Confirmation | None, winner: Candidate, asked: Asked
) -> OptimizeVerdict:
    """`partial` when something was left to be done that could change the answer."""
    if asked.interrupted:
        return "partial"
    if winner.changes:
        return "improved"
    if search.cut_short or (proof is None and search.best_candidate.changes):
        return "partial"
    return "unchanged"


def reason(search: Search, proof: Confirmation | None, winner: Candidate, asked: Asked) -> str:
    """Why the verdict is what it is, and why the search stopped."""
    if asked.interrupted:
        return (
            f"Interrupted after {search.runner.processes} processes; the config is untouched, and "
            "the next call goes on from what was measured."
        )
    stopped = f" The search stopped because {search.stop_reason}." if search.stop_reason else ""
    if winner.changes and proof is not None:
        arm = "after" if winner == proof.arms["after"] else "free"
        ratio = proof.ratio("before", arm)
        assert ratio is not None
        text = (
            f"The tuned config did {ratio.estimate:.2f}x the {search.runner.program.unit}s a "
            f"second in {ratio.n} interleaved rounds of fresh processes; 95 % bounds "
            f"{ratio.low:.2f} to {ratio.high:.2f}."
        )
        if arm == "free" and winner != proof.arms["after"]:
            text += " The other changes were not proven on top of it and were left out."
        return text + stopped
    if proof is not None and proof.failure is not None:
        return (
            f"The best candidate failed while it was being confirmed ({proof.failure.kind}: "
            f"{proof.failure.evidence}), so nothing was written.{stopped}"
        )
    if proof is not None:
        ratio = proof.ratio("before", "after")
        bounds = f" (95 % bounds {ratio.low:.2f} to {ratio.high:.2f})" if ratio else ""
        return (
            f"The best candidate, {search.best_candidate.label}, was not proven to gain more than "
            f"{search.smallest_gain:.0%}{bounds}, so the config stays as it is.{stopped}"
        )
    if search.best_candidate.changes:
        return (
            f"{search.best_candidate.label} looked faster but was not confirmed, so nothing was "
            f"written.{stopped}"
        )
    what = "that may be written without asking you" if search.advice else "that was tried"
    return f"Nothing {what} is faster by more than {search.band:.0%}.{stopped}"


def gain_free(proof: Confirmation | None, winner: Candidate) -> Gain | None:
    """The gain of the free and training part; None where it was not proven apart."""
    free = winner.only("free", "training")
    if proof is None or not free.changes:
        return None
    if "free" in proof.arms:
        return gain(proof, "free")
    return gain(proof, "after") if free == winner else None


def gain(proof: Confirmation | None, arm: str, over: str = "before") -> Gain | None:
    """The interval of `arm` over another arm, the original by default, as the report prints it."""
    ratio = proof.ratio(over, arm) if proof else None
    if ratio is None:
        return None
    return Gain(ratio=ratio.estimate, low=ratio.low, high=ratio.high, pairs=ratio.n)


# --- parts --------------------------------------------------------------------------------


def bottleneck(search: Search, run: Run | None, asked: Asked) -> Bottleneck | None:
    """Where the time of `run` goes."""
    if run is None:
        return None
    original = bool(search.baseline) and run.candidate_key == search.baseline[0].candidate_key
    rivals = [
        taken.result
        for taken in search.runner.taken
        if isinstance(taken.result, Run)
        and taken.purpose == "search"
        and taken.candidate.changes
        and all(c.kind in {"batch_size", "grad_accum"} for c in taken.candidate.changes)
        and (taken.result.effects.batch or 0) > (run.effects.batch or 0)
        and search.faster(taken.result, run)
    ]
    found: Diagnosis = diagnose(
        run,
        faster_batch=max(rivals, key=lambda r: r.units_per_s) if rivals and original else None,
        ceilings=search.ceilings if original else None,
        profile=asked.target.profile if asked.target.present else None,
    )
    return Bottleneck(name=found.name, sentence=found.sentence, evidence=list(found.evidence))


def settled(search: Search, winner: Candidate) -> list[Decision]:
    """Decisions as they stand after the proof: what was not proven was not changed."""
    written = {(c.document, c.path) for c in winner.changes}
    found = []
    for key, decision in search.decisions.items():
        if decision.outcome == "changed" and key not in written:
            found.append(
                replace(
                    decision,
                    outcome="kept",
                    new=decision.old,
                    why="Not written, because the gain was not proven. " + decision.why,
                )
            )
        else:
            found.append(decision)
    return found


def tuned_command(search: Search, winner: Candidate) -> str | None:
    """The command with its own knobs changed, if any of them was."""
    if not any(c.document == COMMAND_LINE for c in winner.changes):
        return None
    return shlex.join(search.runner.program.argv(winner))


def how_to_run(search: Search, winner: Candidate, asked: Asked) -> str:
    """The command that uses the result."""
    command = tuned_command(search, winner) or asked.command
    if winner.changes and asked.output != asked.config and not asked.dry_run:
        return command.replace(str(asked.config), str(asked.output))
    return command


def asked_notes(search: Search, asked: Asked) -> list[str]:
    """What a reader must know before trusting the figures."""
    notes = []
    if not search.has_gpu:
        notes.append(
            "There is no GPU here: this was measured and tuned for this CPU, and says nothing "
            f"about a GPU. {search.machine.gpu_note or ''}".rstrip()
        )
    if asked.target.note and asked.target.profile is not None:
        notes.append(asked.target.note)
    sources = {
        taken.result.rate_source
        for taken in search.runner.taken
        if isinstance(taken.result, Run) and taken.purpose == "confirm"
    }
    notes += [f"How the rate was counted: {source}." for source in sorted(sources)]
    return notes
