"""From a finished search to report.json."""

from __future__ import annotations

import math
import shlex
import statistics
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from advisor import __version__, numbers
from advisor.executor.comparison import (
    AFTER,
    BEFORE,
    COLLAPSED,
    Comparison,
    chained,
    contended_arms,
    neighbours,
)
from advisor.executor.program import COMMAND_LINE
from advisor.executor.requests import contended
from advisor.model import Advice, Candidate, Decision, Failure, Interval, Machine, Run
from advisor.objective import THROUGHPUT
from advisor.report import sentences
from advisor.report.bottleneck import LargerBatch, diagnose, typical
from advisor.report.schema import (
    ActionEntry,
    Bottleneck,
    CandidateEntry,
    ChangeEntry,
    ComparisonEntry,
    DecisionEntry,
    Gain,
    MachineEntry,
    QualityPoint,
    Report,
    RoundEntry,
    Side,
    SuggestionEntry,
    TargetEntry,
    TrialEntry,
)
from advisor.report.verdict import (
    TuningResult,
    baseline_note,
    is_traded,
    needed_budget_s,
    quality_proven,
    reason,
    verdict_of,
    whole_gain,
)
from advisor.stats import pooled_band, walsh_interval
from advisor.tuner import output_check
from advisor.tuner.confirm import proven_confirmations

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from advisor.executor.requests import TrialResult
    from advisor.machine.target import Target
    from advisor.model import Change, Neighbour
    from advisor.objective import Objective
    from advisor.tuner.state import TunerState

BUSY = 0.1
"""Share of the CPUs held by others from which on a machine is called busy."""
NAMED_CPUS = 0.05
"""CPUs; a program that holds less is not named."""
MOST_NAMES = 3
ISOLATION = {
    "overlay": "overlay: files that the program wrote were discarded with each trial",
    "landlock": "landlock: writes outside the trial's own folders were denied",
    "guard": "none: files that the program wrote are real",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """Call itself, as the report repeats it."""

    config: Path | None
    report: Path
    output: Path | None
    """Path of the tuned config, if it was written."""
    rewritten: tuple[Path, ...]
    """Configs that existed before and can be restored."""
    dry_run: bool
    workload: str | None
    command: str
    cwd: Path
    target: Target
    price_per_hour: float | None
    wall_s: float
    resume: tuple[str, ...] = ("gpu-advisor", "optimize")
    """The call again, without its budget and its command."""
    typed: tuple[str, ...] = ()
    """The command, where it was typed."""


def optimize_report(found: TuningResult, info: RunInfo) -> Report:
    """The whole report of one `optimize`."""
    state, winner, objective = found.state, found.winner, found.state.context.objective
    free = next((step for step in found.chain if not is_traded(step)), None)
    traded = [step for step in found.chain if is_traded(step)]
    before, after = sides(found)
    runs = [a.run for a in found.attempts if a.run is not None and not a.reused]
    verdict = verdict_of(found)
    return Report(
        verdict=verdict,
        gain=gain_entry(whole_gain(found)),
        gain_free=gain_entry(free.interval(objective)) if free else None,
        gain_quality=gain_entry(chained(traded, objective)),
        unit=found.unit,
        before=before,
        after=after,
        changes=[change_entry(change, state) for change in winner.changes],
        runs=sum(not attempt.reused for attempt in found.attempts),
        wall_s=round(info.wall_s, 1),
        config=str(info.config) if info.config is not None else "",
        tuned_command=tuned_command(found),
        written=str(info.output) if info.output else None,
        report=str(info.report),
        reason=reason(found),
        baseline_note=baseline_note(found),
        isolation=next((ISOLATION[run.isolation] for run in runs if run.isolation), None),
        isolation_note=isolation_note(runs),
        load_note=load_of(found),
        tool_version=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        dry_run=info.dry_run,
        unfinished=found.unfinished,
        workload=info.workload,
        phase=state.context.workload.phase,
        command=info.command,
        cwd=str(info.cwd),
        machine=machine_entry(found.machine),
        target=target_entry(info.target, state.context.memory_limit_gib),
        bottleneck_before=bottleneck(found, Candidate(), info),
        bottleneck_after=bottleneck(found, winner, info) if winner.changes else None,
        decisions=[decision_entry(each, state) for each in found.decisions],
        quality=quality_points(state),
        quality_proven=quality_proven(found),
        comparisons=[
            comparison_entry(each, objective)
            for each in found.comparisons
            if each.ab_test.purpose != "quality"
        ],
        safe=state.context.safe,
        noise=max(state.noise, between_equal_runs(found.attempts) or 0.0) or None,
        tie_threshold=state.tie_threshold,
        smallest_gain=state.context.smallest_gain,
        objective=objective.name,
        objective_unit=objective.unit(found.unit, numbers.plural(found.unit)),
        constraints=[each.text for each in objective.constraints],
        restored_constraints=found.restored_constraints,
        price_per_hour=info.price_per_hour,
        trials=[trial_entry(attempt) for attempt in found.attempts],
        skipped=[entry.sentence for entry in state.skipped],
        candidate=best_candidate(found) if verdict == "partial" else None,
        next_actions=next_actions(found, info),
        diff=found.diff,
        how_to_run=how_to_run(found, info),
        how_to_revert="\n".join(
            f"gpu-advisor revert {shlex.quote(str(path))}" for path in info.rewritten
        ),
        suggestions=[suggestion_entry(advice) for advice in found.advice],
        notes=notes(found, info),
        files_created=sorted(
            {
                path
                for attempt in found.attempts
                if attempt.result.isolation != "overlay"
                for path in attempt.result.files_created
            }
        ),
    )


# --- before and after ---------------------------------------------------------------------


def sides(found: TuningResult) -> tuple[Side, Side]:
    """Two columns of the table; equal without a change."""
    state, winner = found.state, found.winner
    quality = state.quality
    original = Candidate()
    before = side(runs_of(found, original), dict(quality.before))
    if not winner.changes:
        return before, before
    after_quality = dict(quality.after) if winner.only("numeric", "quality").changes else {}
    after = side(runs_of(found, winner), after_quality or dict(quality.before))
    if found.chain:
        before, after = paired_rates(found, before, after)
    return before, after


def paired_rates(found: TuningResult, before: Side, after: Side) -> tuple[Side, Side]:
    """Rates of both sides, from the comparison's rounds.

    They are at its ratio where throughput decides.
    """
    gain, objective = whole_gain(found), found.state.context.objective
    arms = [
        rate_interval([run.units_per_s for run in step.runs(arm)])
        for step, arm in ((found.chain[0], BEFORE), (found.chain[-1], AFTER))
    ]
    rates = [
        step.typical(THROUGHPUT, arm) or 0.0
        for step, arm in ((found.chain[0], BEFORE), (found.chain[-1], AFTER))
    ]
    if objective.name == THROUGHPUT.name and gain is not None and len(found.chain) > 1:
        rates[1] = rates[0] * gain.estimate
    first, second = (
        old.model_copy(
            update={
                "units_per_s": rate,
                "units_per_s_low": min(arm.low, rate) if arm.n > 1 else None,
                "units_per_s_high": max(arm.high, rate) if arm.n > 1 else None,
            }
        )
        for old, arm, rate in zip((before, after), arms, rates, strict=True)
    )
    return first, second


def runs_of(found: TuningResult, candidate: Candidate) -> list[Run]:
    """Sound runs of one configuration, from baseline and comparisons.

    A run of the search is none of them: it chose the candidate. Quiet runs alone where there are
    two or more.
    """
    runs = [] if candidate.changes else list(found.state.originals)
    for each in found.comparisons:
        if each.ab_test.purpose == "quality":
            continue
        for arm, request in ((BEFORE, each.ab_test.before), (AFTER, each.ab_test.after)):
            variant = request.variant
            if variant.candidate.key == candidate.key and variant.whatif is None:
                runs += each.runs(arm)
    quiet = [run for run in runs if run.disturbance.disturbed is not True]
    return quiet if len(quiet) > 1 else runs


def side(runs: list[Run], quality: dict[str, float]) -> Side:
    """One column, from the runs of one configuration."""
    if not runs:
        return Side(quality=quality)
    rates = rate_interval([run.units_per_s for run in runs])
    mean = typical(runs)
    energy = [
        run.telemetry.energy_j / run.units for run in runs if run.telemetry.energy_j and run.units
    ]
    return Side(
        units_per_s=rates.estimate,
        units_per_s_low=rates.low if rates.n > 1 else None,
        units_per_s_high=rates.high if rates.n > 1 else None,
        tokens_per_s=_median(run.tokens_per_s for run in runs),
        latency_p50_ms=_median(run.latency_p50_ms for run in runs),
        latency_p95_ms=_median(run.latency_p95_ms for run in runs),
        peak_mem_gib=max((run.peak_mem_gib for run in runs if run.peak_mem_gib), default=None),
        gpu_mem_used_gib=max((used for run in runs if (used := run.peak_device_gib)), default=None),
        quality=quality,
        gpu_util_pct=_median(run.telemetry.gpu_util_pct for run in runs),
        cpu_util_pct=_median(run.telemetry.cpu_util_pct for run in runs),
        wait_share=_median(run.wait_share for run in runs),
        startup_s=_median(run.startup_s for run in runs),
        energy_j_per_unit=statistics.median(energy) if energy else None,
        power_w=_median(run.telemetry.power_w for run in runs),
        batch=mean.effects.batch,
        workers=mean.effects.workers,
        forwards_per_unit=mean.effects.forwards_per_unit,
        shares={name: share for name, share in asdict(mean.shares).items() if share is not None},
    )


def rate_interval(rates: list[float]) -> Interval:
    """Median rate of equal processes, with bounds.

    Exact bounds where there are enough, else the range.
    """
    exact = walsh_interval(rates, 0.025)
    low = exact.low if exact.low > 0 else min(rates)
    high = exact.high if exact.high < math.inf else max(rates)
    return Interval(estimate=statistics.median(rates), low=low, high=high, n=len(rates))


def _median(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def bottleneck(found: TuningResult, candidate: Candidate, info: RunInfo) -> Bottleneck | None:
    """Largest cost of one configuration.

    None with fewer than two runs of it.
    """
    runs = list(runs_of(found, candidate))
    if not candidate.changes:
        runs = [*found.state.originals, *(run for run in runs if run not in found.state.originals)]
    diagnosis = diagnose(
        runs,
        larger_batch=None if candidate.changes else larger_batch(found),
        profile=info.target.profile if info.target.present else None,
    )
    if diagnosis is None:
        return None
    return Bottleneck(
        name=diagnosis.name, sentence=diagnosis.sentence, evidence=list(diagnosis.evidence)
    )


def larger_batch(found: TuningResult) -> LargerBatch | None:
    """Proven gain of a larger batch alone."""
    for step in proven_confirmations(found.state)[:1]:
        kinds = {change.kind for change in step.ab_test.after.variant.candidate.changes}
        runs, gain = step.runs(AFTER), step.interval(found.state.context.objective)
        if kinds <= {"batch_size", "grad_accum"} and gain and runs and runs[0].effects.batch:
            return LargerBatch(batch=runs[0].effects.batch, gain=gain)
    return None


# --- commands and next actions ------------------------------------------------------------


def tuned_command(found: TuningResult) -> str | None:
    """Command with its own knobs changed, if any."""
    if not any(change.document == COMMAND_LINE for change in found.winner.changes):
        return None
    return shlex.join(found.program.argv(found.winner))


def how_to_run(found: TuningResult, info: RunInfo) -> str:
    """The command that uses the result."""
    command = tuned_command(found) or info.command
    if info.output not in {None, info.config}:
        return command.replace(str(info.config), str(info.output))
    return command


def resume_command(info: RunInfo, budget_s: float) -> str:
    """Same call, with a large enough budget."""
    words = (*info.resume, "--budget", numbers.whole_minutes(budget_s))
    return shlex.join((*words, *(("--", *info.typed) if info.typed else ())))


def best_candidate(found: TuningResult) -> CandidateEntry | None:
    """Most promising unproven candidate, with its gain."""
    state, objective = found.state, found.state.context.objective
    for step in reversed(state.confirmations):
        gain = step.interval(objective)
        if gain is not None and gain.estimate > 1:
            label = step.ab_test.after.variant.label
            return CandidateEntry(label=label, ratio=gain.estimate, gain=gain_entry(gain))
    suggested = {proposal.variant.candidate.key for proposal in state.suggestions}
    ran = [
        (state.gain(attempt.run, state.original), attempt.request.variant.candidate)
        for attempt in found.attempts
        if attempt.request.purpose == "search" and attempt.run is not None and state.originals
    ]
    ratio, candidate = max(
        (each for each in ran if each[1].changes and each[1].key not in suggested),
        key=lambda each: each[0],
        default=(1.0, Candidate()),
    )
    if ratio <= 1 + state.tie_threshold:
        return None
    return CandidateEntry(label=candidate.label, ratio=ratio)


def next_actions(found: TuningResult, info: RunInfo) -> list[ActionEntry]:
    """Next steps with their calls, the best first.

    They were faster or untried.
    """
    state = found.state
    if not state.originals:
        return []
    command = resume_command(info, needed_budget_s(state))
    actions = [
        ActionEntry(
            text=f"Prove {each.title}: {each.gain:.2f}x in one run",
            command=command,
            ratio=each.gain,
        )
        for each in state.suggestions
        if each.outcome is None
    ]
    candidate = best_candidate(found) if not found.winner.changes else None
    if candidate is not None and verdict_of(found) == "partial":
        gain = numbers.gain(candidate.gain) if candidate.gain else f"{candidate.ratio:.2f}x"
        runs = (
            f"in {numbers.many(candidate.gain.pairs, 'round')}" if candidate.gain else "in one run"
        )
        text = f"Prove {candidate.label}: {gain} {runs}"
        actions.append(ActionEntry(text=text, command=command, ratio=candidate.ratio))
    actions += [
        ActionEntry(
            text=f"Try {each.what} (about {numbers.duration(each.needed_s)})", command=command
        )
        for each in state.skipped
        if each.what != found.winner.label
    ]
    return sorted(actions, key=lambda action: -(action.ratio or 0.0))


# --- caveats ------------------------------------------------------------------------------


def load_of(found: TuningResult) -> str:
    """Background load during the comparison.

    During the search where there is none.
    """
    everything = [a.run for a in found.attempts if a.run is not None and not a.reused]
    proofs = found.state.confirmations
    runs = [run for step in proofs for run in (*step.runs(BEFORE), *step.runs(AFTER))] or everything
    if not runs:
        names = _named(found.background_load)
        return f"Measured under background load: {names}." if names else ""
    used = any(each.used_contended_rounds for each in proofs or found.advice)
    return load_note(runs, neighbours(everything), found.machine.cpus, used_contended_rounds=used)


def load_note(
    runs: Sequence[Run], who: Sequence[Neighbour], cpus: int, *, used_contended_rounds: bool
) -> str:
    """Background load during `runs`; empty on a quiet machine."""
    held = [run.disturbance.others_cpus for run in runs if run.disturbance.others_cpus is not None]
    if not held:
        return "Background load could not be read on this machine." if runs else ""
    if not any(run.disturbance.disturbed for run in runs):
        return ""
    mean, names = statistics.fmean(held), _named(who)
    busy = "on a busy machine" if mean >= BUSY * cpus else "under background load"
    much = f"{mean:.1f}" if mean >= NAMED_CPUS else "less than 0.1"
    text = f"Measured {busy}: others held {much} of {numbers.many(cpus, 'CPU')}"
    text += f" ({names})." if names else "."
    return f"{text} {sentences.UNDER_LOAD}" if used_contended_rounds else text


def _named(who: Sequence[Neighbour]) -> str:
    """`firefox up to 0.3`: the busiest others."""
    named = [each for each in who[:MOST_NAMES] if each.cpus >= NAMED_CPUS]
    return ", ".join(f"{each.name} up to {each.cpus:.1f}" for each in named)


def isolation_note(runs: Sequence[Run]) -> str:
    """Missing protection of the user's files, if any."""
    texts = [note for run in runs if run.isolation == "guard" for note in run.notes]
    text = next((note for note in texts if note.startswith("not isolated")), "")
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def between_equal_runs(attempts: Sequence[TrialResult]) -> float | None:
    """Relative spread of equal processes.

    Collapsed runs are left out; None where none ran twice.
    """
    rates: dict[tuple[str, str], list[float]] = {}
    for attempt in attempts:
        run, request = attempt.run, attempt.request
        if run is not None and request.command == "own" and not contended(run):
            rates.setdefault((attempt.label, request.plan.mode), []).append(run.units_per_s)
    return pooled_band(
        [
            [rate for rate in group if rate * COLLAPSED >= statistics.median(group)]
            for group in rates.values()
        ]
    )


def notes(found: TuningResult, info: RunInfo) -> list[str]:
    """Notes on the figures, the most important first."""
    state = found.state
    lines = list(filter(None, map(sentences.collapsed, state.confirmations)))
    if changed := changed_files(found.attempts):
        lines.insert(0, sentences.changed_files(changed))
    suggestions = [each for each in state.suggestions if each.outcome is not None]
    compared = (*state.confirmations, *(each.outcome for each in suggestions if each.outcome))
    after = [run for comparison in compared for run in comparison.runs(AFTER)]
    if unread := output_check.unread(state.originals, after):
        lines.append(sentences.unread(unread))
    if state.quality.judgements and state.context.workload.quality_proof == "one-run":
        lines.append(
            "Quality is not proven: quality-proof is one-run, so each value rests on one run."
        )
    if found.history_set_aside:
        lines.append(found.history_set_aside)
    if slow := sentences.slow_starts(state.starts):
        lines.append(slow)
    if info.target.note and info.target.profile is not None:
        lines.append(info.target.note)
    if not state.context.has_gpu:
        lines.append("All of this was measured on this CPU. It says nothing about a GPU.")
    lines += [
        f"Found by experiment: {sentences.followed(each, found.program.unit)}"
        for source in state.context.sources
        for each in source.findings.followed
    ]
    if state.batch_at is not None:
        lines.append(sentences.batch_place(state.batch_at))
    proven = {advice.title for advice in found.advice}
    if without := [each.title for each in suggestions if each.title not in proven]:
        lines.append("Tried, and not proven to gain: " + ", ".join(without) + ".")
    sources = {
        attempt.run.rate_source.partition(" (")[0]
        for attempt in found.attempts
        if attempt.run is not None and attempt.request.purpose == "confirm"
    }
    return lines + [f"Throughput was counted by {source}." for source in sorted(sources)]


def changed_files(attempts: Sequence[TrialResult]) -> list[str]:
    """User's files that a command changed for good.

    An overlay keeps them unchanged.
    """
    results = [each.result for each in attempts if each.result.isolation != "overlay"]
    created = {path for result in results for path in result.files_created}
    return sorted({path for result in results for path in result.files_changed} - created)


# --- entries ------------------------------------------------------------------------------


def gain_entry(interval: Interval | None) -> Gain | None:
    """Interval for the report.

    Without a high bound that gives no size.
    """
    if interval is None:
        return None
    high = None if sentences.too_wide(interval) else interval.high
    return Gain(ratio=interval.estimate, low=interval.low, high=high, pairs=interval.n)


def change_entry(change: Change, state: TunerState) -> ChangeEntry:
    """Value that is written.

    A training knob is free in a program that does not train.
    """
    trains = not state.originals or state.trains
    free = change.knob_class == "training" and not trains
    return ChangeEntry.model_validate(
        {
            "path": change.path,
            "from": change.old,
            "to": change.new,
            "class": "free" if free else change.knob_class,
            "kind": change.kind,
            "document": change.document,
        }
    )


def decision_entry(decision: Decision, state: TunerState) -> DecisionEntry:
    """One decision."""
    knobs = {(knob.document, knob.path): knob for knob in state.all_knobs}
    knob = knobs.get((decision.document, decision.path))
    return DecisionEntry.model_validate(
        {
            "path": decision.path,
            "kind": decision.kind,
            "class": decision.knob_class,
            "document": decision.document,
            "outcome": decision.outcome,
            "from": _plain(decision.old),
            "to": _plain(decision.new),
            "reason": decision.reason,
            "in_phase": knob is None or decision.outcome == "changed" or state.in_phase(knob),
            "trials": list(decision.trials),
        }
    )


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def suggestion_entry(advice: Advice) -> SuggestionEntry:
    """One suggestion."""
    return SuggestionEntry(
        title=advice.title,
        detail=advice.reason,
        gain=gain_entry(advice.gain),
        site=advice.site,
        patch=advice.patch,
    )


def settings_of(candidate: Candidate) -> dict[str, Any]:
    """Changed values of a candidate, by path."""
    return {change.path: _plain(change.new) for change in candidate.changes}


def trial_entry(attempt: TrialResult) -> TrialEntry:
    """One process, for the report and the progress display."""
    result, variant = attempt.result, attempt.request.variant
    common = {
        "id": attempt.id,
        "purpose": attempt.request.purpose,
        "label": attempt.label,
        "wall_s": result.wall_s,
        "settings": settings_of(variant.candidate),
        "whatif": variant.whatif,
        "reused": attempt.reused,
        "repeated": attempt.repeated,
    }
    if isinstance(result, Failure):
        detail = f"{result.evidence}\n{result.log_tail}".strip()
        return TrialEntry.model_validate({**common, "outcome": result.kind, "detail": detail})
    return TrialEntry.model_validate(
        {
            **common,
            "outcome": "ok",
            "units_per_s": result.units_per_s,
            "batch": result.effects.batch,
            "workers": result.effects.workers,
            "wait_share": result.wait_share,
            "peak_mem_gib": result.peak_mem_gib,
            "rate_source": result.rate_source,
            "others_cpus": result.disturbance.others_cpus,
            "contended": result.disturbance.disturbed,
            "detail": "; ".join(result.notes),
        }
    )


def comparison_entry(found: Comparison, objective: Objective) -> ComparisonEntry:
    """The rounds of one comparison."""
    counted = {each.number for each in found.counted}
    return ComparisonEntry(
        purpose=found.ab_test.purpose,
        title=found.ab_test.title,
        before=found.ab_test.before.variant.label,
        after=found.ab_test.after.variant.label,
        settings=settings_of(found.ab_test.after.variant.candidate),
        gain=gain_entry(found.interval(objective)),
        rounds=[
            RoundEntry(
                round=each.number,
                before=objective.score(before),
                after=objective.score(after),
                contended=contended_arms(each.runs),
                counted=each.number in counted,
            )
            for each in found.rounds
            if not each.failed
            and (before := each.runs[BEFORE].run) is not None
            and (after := each.runs[AFTER].run) is not None
        ],
    )


def quality_points(state: TunerState) -> list[QualityPoint]:
    """Every judgement of a quality measure."""
    return [
        QualityPoint(
            measure=each.measure,
            candidate=label,
            value=each.value,
            reference=each.reference,
            limit=each.limit,
            low=each.low,
            high=each.high,
            runs=each.runs,
            items=each.items,
            stage=each.stage,
            within=each.within,
        )
        for label, each in state.quality.judgements
        if each.reference is not None and each.limit is not None
    ]


def machine_entry(machine: Machine) -> MachineEntry:
    """The host."""
    first = machine.gpus[0] if machine.gpus else None
    return MachineEntry(
        cpu=machine.cpu_model,
        cpus=machine.cpus,
        ram_gib=machine.ram_limit_gib,
        os=machine.os,
        gpus=[gpu.name for gpu in machine.gpus],
        gpu_mem_gib=first.memory_total_gib if first else None,
        gpu_note=machine.gpu_note,
        driver=first.driver if first else None,
        python=machine.python,
    )


def target_entry(target: Target, memory_limit_gib: float) -> TargetEntry:
    """The card aimed at."""
    return TargetEntry(
        name=target.name,
        title=target.title,
        present=target.present,
        stood_in=target.stood_in,
        memory_limit_gib=memory_limit_gib,
        figures=target.figures,
        note=target.note,
    )
