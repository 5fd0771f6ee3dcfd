"""From a finished search to report.json."""

import math
import shlex
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from advisor import __version__, numbers
from advisor.executor.comparison import Comparison
from advisor.executor.requests import AFTER, BEFORE, COMMAND_LINE, TrialResult
from advisor.machine.target import Target
from advisor.model import Candidate, Change, Failure, Run, SkipCause
from advisor.objective import METRICS, THROUGHPUT, Objective
from advisor.report import schema, verdict
from advisor.report.bottleneck import diagnose, typical
from advisor.report.schema import CandidateEntry, Gain, Report, Side, TrialEntry
from advisor.report.verdict import FinishedTuning, whole_gain
from advisor.stats import walsh_interval
from advisor.tuner import same_work
from advisor.tuner.state import TunerState

ISOLATION = {
    "overlay": "overlay: files that the program wrote were discarded with each trial",
    "landlock": "landlock: writes outside the trial's own folders were denied",
    "guard": "none: files that the program wrote are real",
}

NEEDS: dict[SkipCause, str] = {"no-room": "about", "time-limit": "more than"}
"""How the time of a task that was left out is known."""


def optimize_report(tuning: FinishedTuning) -> Report:
    """report.json of a call that has ended, whatever came out of it.

    Every sentence is made where it is decided, here or in `verdict.py`; rendering adds none.
    """
    state, winner = tuning.state, tuning.winner
    objective = state.context.objective
    before, after = sides(tuning)
    runs = [a.run for a in tuning.lab.attempts if a.run is not None and not a.reused]
    outcome = verdict.verdict_of(tuning)
    unused = verdict.unused_gpu(state.originals, tuning.machine.gpus)
    profile = tuning.target.profile if tuning.target.present else None
    tuned = runs_of(tuning, winner) if winner.changes else []
    best = verdict.best_candidate(tuning) if outcome == "partial" else None
    steps = next_actions(tuning, best)
    verdicts = (state.verdict_on(knob) for knob in state.of_kind("num_workers"))
    # where the search settled the number of workers, no report advises another one
    workers = {judged.outcome for judged in verdicts if judged} & {"kept", "found"}
    return Report(
        verdict=outcome,
        gain=Gain.of(whole_gain(tuning)),
        gain_free=Gain.of(verdict.free_gain(tuning)),
        unit=tuning.unit,
        before=before,
        after=after,
        changes=_changes(state, winner),
        observed=same_work.observed(state.originals, tuned[-1]) if tuned else {},
        runs=sum(not attempt.reused for attempt in tuning.lab.attempts),
        wall_s=round(tuning.wall_s, 1),
        config=", ".join(map(str, tuning.configs)),
        tuned_command=tuned_command(tuning),
        written=", ".join(map(str, tuning.written)) or None,
        report=str(tuning.report),
        reason=verdict.reason(tuning),
        baseline_note=" ".join(filter(None, (unused, verdict.baseline_note(tuning)))),
        isolation=next((ISOLATION[run.isolation] for run in runs if run.isolation), None),
        isolation_note=verdict.unprotected(runs),
        load_note=verdict.load_of(tuning, runs),
        allocation_note=verdict.more_cpus(tuned or state.originals, tuning.machine),
        tool_version=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        dry_run=tuning.dry_run,
        work_left=verdict.leaves_work(tuning),
        unfinished=tuning.stop is None or tuning.stop.reason == "budget-too-small",
        command=tuning.command,
        cwd=str(tuning.lab.program.cwd),
        machine=tuning.machine,
        target=_aim(tuning.target),
        unseen_card=tuning.unseen_card,
        target_figures=tuning.target.datasheet,
        memory_limit_gib=state.context.memory_limit_gib,
        bottleneck_before=diagnose(
            runs_of(tuning, Candidate()),
            profile=profile,
            more_workers="kept" not in workers,
        ),
        bottleneck_after=diagnose(tuned, profile=profile, more_workers=not workers),
        decisions=tuning.decisions,
        tolerances=tolerances(tuning),
        quality_note=quality_note(tuning),
        quality=[
            schema.QualityEntry(candidate=label, judgement=judgement)
            for label, judgement in state.quality.judgements
            if judgement.limit is not None
        ],
        comparisons=[
            _comparison(comparison, objective)
            for comparison in tuning.lab.comparisons
            if comparison.ab_test.purpose != "quality"
        ],
        noise=state.noise or None,
        too_noisy=outcome == "partial" and verdict.too_noisy(tuning),
        objective=objective.metric.name,
        objective_unit=objective.metric.unit_for(tuning.unit),
        constraints=[constraint.text for constraint in objective.constraints],
        restored_constraints=tuning.restored_constraints,
        trials=[trial_entry(attempt) for attempt in tuning.lab.attempts],
        candidate=best,
        next_actions=steps,
        next_command=next_command(tuning) if steps else "",
        skipped=[
            schema.SkippedEntry(
                task=step.task.kind,
                about=step.task.about,
                rest=step.task.rest,
                needed_s=round(step.needed_s, 1),
                matters=step.matters,
                cause=step.cause,
            )
            for step in state.skipped
        ],
        left_out=[
            schema.LeftOutEntry(
                label=entry.what,
                ratio=entry.gain,
                cause=entry.cause,
                reason=entry.text,
                is_open=entry.is_open,
            )
            for entry in verdict.left_out(tuning)
        ],
        diff=tuning.diff,
        how_to_run=how_to_run(tuning),
        how_to_revert=how_to_revert(tuning),
        suggestions=[
            schema.SuggestionEntry(**{**advice._asdict(), "gain": Gain.of(advice.gain)})
            for advice in tuning.advice
        ],
        notes=list(verdict.caveats(tuning)),
    )


def sides(tuning: FinishedTuning) -> tuple[Side, Side]:
    """Two columns of the table; equal without a change.

    Rates are those of the comparison. Where throughput decides, that of after is before's
    times the gain, so that a reader who divides them gets the gain of the headline.
    """
    state, gain = tuning.state, whole_gain(tuning)
    measured, tuned = dict(state.quality.before), dict(state.quality.after)
    originals = runs_of(tuning, Candidate())
    if not tuning.chain:
        before = side(originals, measured, originals)
        return before, before
    first, last = tuning.chain[0], tuning.chain[-1]
    traded = tuning.winner.only("numeric", "quality").changes
    if traded and tuned:
        measured = dict(state.quality.compared)
    before = side(originals, measured, first.runs(BEFORE))
    rate = None
    if state.context.objective.metric is THROUGHPUT.metric and gain and before.units_per_s:
        rate = before.units_per_s * gain.estimate
    quality = (traded and tuned) or measured
    return before, side(runs_of(tuning, tuning.winner), quality, last.runs(AFTER), rate)


def tolerances(tuning: FinishedTuning) -> dict[str, str]:
    """Declared tolerance of each measure that a written change was held to; empty without any."""
    workload = tuning.state.context.workload
    if not tuning.winner.only("numeric", "quality").changes:
        return {}
    if tuning.state.quality.after:
        return {name: measure.tolerance for name, measure in workload.quality.items()}
    share = workload.numeric_tolerance
    return {} if share is None else {"drift": numbers.percent(share)}


def quality_note(tuning: FinishedTuning) -> str:
    """Sentence on what the quality before was measured with; empty for the original itself."""
    log = tuning.state.quality
    if not (tolerances(tuning) and log.after and log.best and log.best.changes):
        return ""
    return f"Quality before is that of {log.best.label}, with the seeds and items of after."


def runs_of(tuning: FinishedTuning, candidate: Candidate) -> list[Run]:
    """Sound runs of one configuration; two or more quiet ones stand alone.

    They are of baseline and comparisons. A run of the search chose the candidate among many, so
    it is likelier than others to be fast by chance.
    """
    runs = [] if candidate.changes else list(tuning.state.originals)
    for comparison in tuning.lab.comparisons:
        if comparison.ab_test.purpose == "quality":
            continue
        for arm, request in comparison.ab_test.by_name.items():
            variant = request.variant
            if variant.candidate.key == candidate.key:
                runs += comparison.runs(arm)
    quiet = [run for run in runs if run.disturbance.disturbed is not True]
    return quiet if len(quiet) > 1 else runs


def side(
    runs: Sequence[Run],
    quality: dict[str, float],
    timed: Sequence[Run],
    rate: float | None = None,
) -> Side:
    """One column, from the runs of one configuration.

    Rate, unless given: median of `timed` with exact bounds or range; none for one process.
    Memory and the figures of the metrics are those of `timed`, too: a baseline with diagnostics
    holds more than the runs that it would be compared with.
    """
    if not runs or not timed:
        return Side(quality=quality)
    rates = [run.units_per_s for run in timed]
    rate = rate or statistics.median(rates)
    exact = walsh_interval(rates, 0.025)
    low = exact.low if exact.low > 0 else min(rates)
    high = exact.high if exact.high < math.inf else max(rates)
    figures = {name: _median(map(metric.read, timed)) for name, metric in METRICS.items()}
    mean, peak = typical(runs), typical(timed)
    return Side(
        units_per_s=rate,
        units_per_s_low=min(low, rate) if len(rates) > 1 else None,
        units_per_s_high=max(high, rate) if len(rates) > 1 else None,
        tokens_per_s=_median(run.tokens_per_s for run in runs),
        peak_mem_gib=peak.peak_mem_gib,
        gpu_mem_used_gib=peak.peak_device_gib,
        quality=quality,
        gpu_util_pct=_median(run.telemetry.gpu_util_pct for run in runs),
        figures={name: figure for name, figure in figures.items() if figure is not None},
        batch=mean.effects.batch,
        forwards_per_unit=mean.effects.forwards_per_unit,
        shares={
            name: share for name, share in asdict(mean.shares).items() if share is not None
        },
    )


def _median(values: Iterable[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return statistics.median(measured) if measured else None


def tuned_command(tuning: FinishedTuning) -> str | None:
    """Command with its own knobs changed, if any."""
    if not any(change.document == COMMAND_LINE for change in tuning.winner.changes):
        return None
    return shlex.join(tuning.lab.program.argv(tuning.winner))


def how_to_run(tuning: FinishedTuning) -> str:
    """The command that uses the result."""
    command = tuned_command(tuning) or tuning.command
    if tuning.written and not set(tuning.written) <= set(tuning.configs):
        return command.replace(str(tuning.configs[0]), str(tuning.written[0]))
    return command


def how_to_revert(tuning: FinishedTuning) -> str:
    rewritten = [str(path) for path in tuning.written if path in tuning.configs]
    return shlex.join(["gpu-advisor", "revert", *rewritten]) if rewritten else ""


def next_actions(tuning: FinishedTuning, best: CandidateEntry | None) -> list[str]:
    """Faster or untried steps, the best first."""
    state = tuning.state
    if not state.originals:
        return []
    once = [suggestion for suggestion in state.suggestions if suggestion.outcome is None]
    steps = [(s.gain, f"Prove {s.title}: {s.gain:.2f}x in one run") for s in once]
    unjudged = [entry for entry in state.left_out if entry.is_open]
    steps += [(s.gain, f"Prove {s.text.rstrip('.')}") for s in unjudged]
    titles = [s.title for s in once]
    if tuning.winner.changes:
        titles.append(tuning.winner.label)
    for suggestion in state.suggestions:
        rounds = suggestion.outcome if suggestion.unfinished else None
        gain = rounds and Gain.of(rounds.interval(state.context.objective))
        if gain:
            steps.append((gain.ratio, f"Prove {suggestion.title}: {gain.text} so far"))
            titles.append(suggestion.title)
    if best is not None and best.label not in titles:
        steps.append((best.ratio, f"Prove {best.label}"))
        titles.append(best.label)
    untried = [
        f"Measure {step.task.text}, which takes {NEEDS[step.cause]} "
        f"{numbers.duration(step.needed_s)}"
        for step in state.skipped
        if step.task.about not in titles
    ]
    return [step for _, step in sorted(steps, reverse=True)] + untried


def next_command(tuning: FinishedTuning) -> str:
    """The call that does them all."""
    budget = numbers.whole_minutes(verdict.needed_budget_s(tuning.state))
    return shlex.join(("gpu-advisor", "optimize", "--budget", budget, *tuning.words))


def _changes(state: TunerState, winner: Candidate) -> tuple[Change, ...]:
    """Values written; a training knob is free where nothing trains."""
    if not state.originals or state.trains:
        return winner.changes
    return tuple(
        replace(change, knob_class="free") if change.knob_class == "training" else change
        for change in winner.changes
    )


def _aim(target: Target) -> str | None:
    """Target card, in words."""
    if target.name == "cpu":
        return None
    if target.memory_cap_gib is not None:
        return f"{target.title}, a larger card with its memory capped"
    return target.title if target.present else f"{target.title}, not on this machine"


def beside_batches(candidate: Candidate) -> str:
    """Label of its changes other than batches and what moves with them; empty without any."""
    kinds = {change.kind for change in candidate.changes}
    moved = {"batch_size", "grad_accum"} if "batch_size" in kinds else set()
    others = tuple(change for change in candidate.changes if change.kind not in moved)
    return Candidate(changes=others).label if others else ""


def trial_entry(attempt: TrialResult) -> TrialEntry:
    result, variant = attempt.result, attempt.request.variant
    facts: dict[str, Any] = {
        "id": attempt.id,
        "purpose": attempt.request.purpose,
        "label": attempt.request.label,
        "beside": beside_batches(variant.candidate),
        "wall_s": result.wall_s,
        "whatif": ", ".join(c.label for c in variant.candidate.in_code.changes) or None,
        "reused": attempt.reused,
        "repeated": attempt.repeated,
    }
    if isinstance(result, Failure):
        batches = (c.new for c in variant.candidate.changes if c.kind == "batch_size")
        batch = next((new for new in batches if isinstance(new, int)), None)
        detail = f"{result.evidence}\n{result.log_tail}".strip()
        return TrialEntry(outcome=result.kind, batch=batch, detail=detail, **facts)
    return TrialEntry(
        outcome="ok",
        units_per_s=result.units_per_s,
        batch=result.effects.batch,
        workers=result.effects.workers,
        wait_share=result.wait_share,
        peak_mem_gib=result.peak_mem_gib,
        detail="; ".join(result.notes),
        **facts,
    )


def _comparison(comparison: Comparison, objective: Objective) -> schema.ComparisonEntry:
    counted = {round_.number for round_ in comparison.counted}
    return schema.ComparisonEntry(
        purpose=comparison.ab_test.purpose,
        before=comparison.ab_test.before.label,
        after=comparison.ab_test.after.label,
        gain=Gain.of(comparison.interval(objective)),
        rounds=[
            schema.RoundEntry(
                round=round_.number,
                **{
                    arm: objective.score(done.run)
                    for arm, done in round_.runs.items()
                    if done.run
                },
                contended=comparison.contended(round_),
                counted=round_.number in counted,
            )
            for round_ in comparison.rounds
            if not round_.failed
        ],
    )
