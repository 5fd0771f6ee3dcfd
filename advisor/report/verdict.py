"""Verdict of a search with gain, reason and caveats."""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor import numbers
from advisor.executor.background_load import neighbours
from advisor.executor.comparison import FEWEST, UNDER_LOAD, Comparison, chained
from advisor.executor.executor import Executor
from advisor.executor.requests import AFTER, BEFORE, contended
from advisor.executor.rounds import runs_of
from advisor.knobs.discovery import Followed
from advisor.knobs.registry import REGISTRY
from advisor.machine.target import Target
from advisor.model import (
    BEFORE_TRAINING,
    Advice,
    Candidate,
    Decision,
    Failure,
    Gpu,
    Interval,
    Machine,
    Neighbour,
    Run,
)
from advisor.report.bottleneck import WAITING
from advisor.report.schema import CandidateEntry, Gain, OptimizeVerdict
from advisor.tuner import confirm, output_check, reserves
from advisor.tuner.code_suggestions import is_confirmed
from advisor.tuner.outcomes import LeftOut, Objection
from advisor.tuner.search import unusable
from advisor.tuner.stages import Stop
from advisor.tuner.state import TunerState


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTuning:
    """Finished call, with the candidate to write."""

    stop: Stop | None
    """None: interrupted before the search stopped."""
    state: TunerState
    lab: Executor
    """Executor with the program, and all that ran."""
    winner: Candidate
    decisions: tuple[Decision, ...]
    advice: tuple[Advice, ...]
    machine: Machine
    diff: str
    configs: tuple[Path, ...]
    report: Path
    written: tuple[Path, ...]
    """Paths of the tuned configs, if written."""
    dry_run: bool
    command: str
    target: Target
    wall_s: float
    words: tuple[str, ...] = ()
    """Words of the call as typed, without its budget: a next command repeats them."""

    @property
    def subject(self) -> str:
        """`command` or `config`: the thing tuned."""
        return "config" if self.lab.program.configs else "command"

    @property
    def unseen_card(self) -> str:
        """Card that the program computed on, where NVML shows none; else empty."""
        gpu = self.target.gpu
        return gpu.name if gpu is not None and not self.machine.gpus else ""

    @property
    def unit(self) -> str:
        """Unit counted: the workload's, or tokens."""
        originals = self.state.originals
        return originals[-1].unit if originals else self.lab.program.unit

    @property
    def chain(self) -> tuple[Comparison, ...]:
        """Comparisons from the original to the winner."""
        return confirm.proven_confirmations(self.state) if self.winner.changes else ()

    @property
    def restored_constraints(self) -> list[str]:
        """Constraints that every run of the original in the comparison broke.

        Baselines do not count: their diagnostics hold memory of their own.
        """
        state = self.state
        before = self.chain[0].runs(BEFORE) if self.chain else ()
        if not confirm.restores_constraints(state, before):
            return []
        return [limit.text for limit in state.context.objective.broken(before[0])]

    @property
    def never_run(self) -> list[str]:
        """Settings to write whose other values the budget left out."""
        return [
            decision.path
            for decision in self.decisions
            if decision.outcome == "skipped" and not decision.in_code
        ]


def free_gain(tuning: FinishedTuning) -> Interval | None:
    for step in tuning.chain:
        if not step.ab_test.after.candidate.only("numeric", "quality").changes:
            return _of_long_runs(tuning, step.interval(tuning.state.context.objective))
    return None


def whole_gain(tuning: FinishedTuning) -> Interval | None:
    """Gain of all written values, by all evidence."""
    return _of_long_runs(tuning, chained(tuning.chain, tuning.state.context.objective))


def _of_long_runs(tuning: FinishedTuning, gain: Interval | None) -> Interval | None:
    """Widen the bounds to at least the smallest gain worth a change, each way.

    Rounds repeat the same seconds of a program, so they agree better with each other than with
    hours of it: what differs between the two is in every round alike, and in no interval.
    """
    return gain and gain.widened(tuning.state.context.smallest_gain)


def baseline_note(tuning: FinishedTuning) -> str:
    """Sentence on a baseline that disagrees with the comparison."""
    objective = tuning.state.context.objective
    unit = objective.metric.unit_for(tuning.unit)
    return (tuning.chain and tuning.chain[0].drift_note(objective, unit)) or ""


TOO_NOISY = 0.5
"""Spread of equal runs from which a search of single runs shows nothing, as a share.

Five of six pairs of equal runs differ by less. The deviation of a run is then 20 %, and a value
twice as fast looks no faster than a tie (15 %) in one run of forty.

Judgement: smaller discourages searches that do find a value twice as fast, larger keeps quiet about
those that cannot."""


def too_noisy(tuning: FinishedTuning) -> bool:
    """True if values ran alone, and equal runs differ so much that a gain may have been missed."""
    state = tuning.state
    searched = any(
        attempt.request.purpose == "search" and attempt.request.variant.candidate.changes
        for attempt in tuning.lab.attempts
    )
    return searched and state.noise_of(state.best) > TOO_NOISY


def verdict_of(tuning: FinishedTuning) -> OptimizeVerdict:
    """Verdict; `unchanged` only if it is known that nothing better was found.

    It tells the user to stop looking, so it is `partial` as long as anything is open: a step
    that the budget left out, a gain that is likely but not proven, rounds that others disturbed,
    or runs too far apart for a search to see a gain.
    """
    state, stop = tuning.state, tuning.stop
    if stop is None:
        return "partial"
    if tuning.winner.changes:
        return "improved"
    is_open = _never_compared(state) or state.likely or bool(_likely_suggestions(state))
    unknown = too_noisy(tuning) or any(map(is_undecided, _compared_all(state)))
    return "partial" if leaves_work(tuning) or is_open or unknown else "unchanged"


def leaves_work(tuning: FinishedTuning) -> bool:
    """True if the budget left out, or cut off, something worth trying."""
    state, stop = tuning.state, tuning.stop
    if stop is None or stop.reason == "budget-too-small":
        return True
    cut_short = bool(state.confirmations) and state.confirmations[-1].cut_short
    return (
        cut_short or bool(tuning.never_run) or any(step.matters for step in state.skipped)
    )


def reason(tuning: FinishedTuning) -> str:
    """Reason of the verdict, in short."""
    if tuning.stop is None:
        return _interrupted(tuning)
    if (whole := Gain.of(whole_gain(tuning))) is not None:
        return _improved(tuning, whole)
    text, budget_s = _nothing_proven(tuning), needed_budget_s(tuning.state)
    if tuning.stop.reason == "budget-too-small":
        text, budget_s = _too_small(tuning.state), tuning.stop.needed_s or 0.0
    elif tuning.never_run:
        text += (
            f" The budget was spent before {', '.join(tuning.never_run)} could be judged."
        )
    if verdict_of(tuning) == "partial":
        if too_noisy(tuning):
            text += f" A gain may have been overlooked: {tuning.state.apart}."
        text += f" Call again with --budget {numbers.whole_minutes(budget_s)}"
        text += _where(tuning) + "."
    return text


def _where(tuning: FinishedTuning) -> str:
    """Words that follow a budget which alone would not help."""
    undecided = any(map(is_undecided, _compared_all(tuning.state)))
    return " on an idle machine" if undecided or too_noisy(tuning) else ""


def _compared_all(state: TunerState) -> list[Comparison]:
    """Comparisons of candidates and of suggestions."""
    suggested = (suggestion.outcome for suggestion in state.suggestions)
    return [*state.confirmations, *(step for step in suggested if step is not None)]


def is_undecided(step: Comparison) -> bool:
    """True if others disturbed so many rounds that the rest gives no interval."""
    if step.failure or step.cut_short or not step.rounds:
        return False
    return len(step.counted) < FEWEST


def undecided(step: Comparison, title: str = "") -> str:
    """Sentence on a comparison that others left open; empty for any other."""
    if not is_undecided(step):
        return ""
    names = {step.ab_test.names[0]: "the original", AFTER: "it"}
    slowed = [
        words
        for arm, words in names.items()
        if any(map(contended, runs_of(step.rounds, arm)))
    ]
    who = ", ".join(
        f"{disturber.name} up to {disturber.cpus:.1f} CPUs"
        for disturber in step.disturbers[:MOST_NAMED]
        if disturber.cpus >= NAMED_CPUS
    )
    label = title or step.ab_test.after.label
    return (
        f"{label} could not be judged: others slowed {' and '.join(slowed)} in too many rounds"
        f"{f' ({who})' if who else ''}."
    )


def _interrupted(tuning: FinishedTuning) -> str:
    many = numbers.many(
        sum(not attempt.reused for attempt in tuning.lab.attempts), "process"
    )
    text = (
        f"Interrupted after {many}. The {tuning.subject} is untouched, and the next call reuses "
        "these measurements."
    )
    best = best_candidate(tuning)
    return f"{text} Best so far: {best.label}, {best.text}." if best else text


def _improved(tuning: FinishedTuning, whole: Gain) -> str:
    state, objective = tuning.state, tuning.state.context.objective
    bounds = "lower 95 % bound; the machine was too unsteady to say how much more"
    if whole.high is not None:
        bounds = (
            f"95 % interval {numbers.factor(whole.low)} to {numbers.factor(whole.high)}"
        )
    text = (
        f"The tuned {tuning.subject} gives "
        f"{objective.metric.gained(whole.size, tuning.unit)} in "
        f"{numbers.many(whole.pairs, 'interleaved round')} of fresh processes; {bounds}."
    )
    if tuning.restored_constraints:
        text += f" It keeps {', '.join(tuning.restored_constraints)}; no run of the original did."
    if not all(
        confirm.is_significant(state, confirmation) for confirmation in state.confirmations
    ):
        text += " Changes that were not proven on top of it were left out."
    return text


def _too_small(state: TunerState) -> str:
    takes = f"takes about {numbers.duration(state.costs.price_s)}"
    return (
        f"One process of this program {takes if state.originals else 'finished no item'}, so the "
        f"budget of {numbers.duration(state.context.budget_s)} is too small to try and prove a "
        "setting."
    )


def _nothing_proven(tuning: FinishedTuning) -> str:
    """Sentence on the last step that proved nothing.

    How far the best candidate came: it failed, could not be judged, was not proven, was refused;
    or no candidate was faster, or none was tried, for the reason of the first setting kept.
    """
    state, last = tuning.state, next(reversed(tuning.state.confirmations), None)
    if last is not None and last.failure is not None:
        evidence = last.failure.evidence.rstrip(".")
        return (
            f"The best candidate failed in the comparison ({last.failure.kind}: {evidence}), so "
            "nothing was written."
        )
    if last is not None and (left_open := undecided(last)):
        return left_open
    if best := (last and _compared(last, state)) or best_candidate(tuning):
        smallest = f"{state.context.smallest_gain:.0%}"
        unproven = (
            f"The best candidate, {best.label}, was not proven to gain more than {smallest}"
        )
        return f"{unproven}: {best.text}."
    for ratio, candidate, against in _faster(tuning):
        if against:
            faster = f"{candidate.label} was faster ({numbers.ratio(ratio)} in one run)"
            return f"{faster} and was not taken: it {against.clause.rstrip('.')}."
    tried = [d for d in tuning.decisions if d.trials and not d.in_code]
    if tried and all(decision.outcome == "ignored" for decision in tried):
        return f"`{tried[0].path}`: {tried[0].reason}"
    searched = [
        a.request.variant for a in tuning.lab.attempts if a.request.purpose == "search"
    ]
    advised = bool(state.suggestions)
    which = "that may be written" if advised else "tested"
    slower = f"No value {which} was faster by more than {state.tie_percent}."
    if advised and all(decision.in_code for decision in tuning.decisions):
        if any(is_confirmed(state, suggestion) for suggestion in state.suggestions):
            return "Every value that was tried stands in the program's code: no file is changed."
        return f"No value tested was proven faster. Runs tie within {state.tie_percent}."
    if any(variant.candidate.changes for variant in searched):
        return slower
    if any(entry.matters for entry in state.skipped):
        return "The budget was spent before a candidate could run, so nothing is known yet."
    if state.quality.judgements:
        return "No change of results was confirmed to stay inside the declared tolerances."
    coded = {
        (decision.document, decision.path)
        for decision in tuning.decisions
        if decision.in_code
    }
    for kept in state.verdicts:
        if kept.outcome == "kept" and kept.knob not in coded:
            return f"{kept.knob[1]}: {kept.reason}"
    return (
        slower
        if advised
        else "No setting was found that may be changed without asking you."
    )


def best_candidate(tuning: FinishedTuning) -> CandidateEntry | None:
    """Most promising unproven candidate or suggestion, with its gain."""
    state = tuning.state
    compared = [
        _compared(confirmation, state) for confirmation in reversed(state.confirmations)
    ]
    suggested = [
        _compared(step, state, title) for title, step in _likely_suggestions(state)
    ]
    for best in filter(None, (*compared, *suggested)):
        if best.ratio > 1:
            return best
    # One fast run says nothing where rounds were run.
    tried = [step for step in state.confirmations if _compared(step, state)]
    compared_keys = {step.ab_test.after.candidate.key for step in tried}
    for ratio, candidate, against in _faster(tuning):
        if not against and candidate.key not in compared_keys:
            return CandidateEntry(label=candidate.label, ratio=ratio)
    return None


def _compared(
    step: Comparison, state: TunerState, title: str = ""
) -> CandidateEntry | None:
    """Candidate with the gain of its rounds; None without an interval."""
    gain = Gain.of(step.interval(state.context.objective))
    label = title or step.ab_test.after.label
    return CandidateEntry(label=label, ratio=gain.ratio, gain=gain) if gain else None


def _likely_suggestions(state: TunerState) -> list[tuple[str, Comparison]]:
    """Unproven suggestions that may be faster, best first."""
    objective, smallest_gain = state.context.objective, state.context.smallest_gain
    ranked = sorted(state.suggestions, key=lambda suggestion: -suggestion.gain)
    unproven = (suggestion for suggestion in ranked if not is_confirmed(state, suggestion))
    tried = [
        (suggestion.title, suggestion.outcome)
        for suggestion in unproven
        if suggestion.outcome is not None
    ]
    return [
        (title, outcome)
        for title, outcome in tried
        if outcome.cut_short or outcome.is_likely(objective, smallest_gain)
    ]


def _never_compared(state: TunerState) -> bool:
    """True if a faster candidate never came to its comparison."""
    unproven = any(suggestion.outcome is None for suggestion in state.suggestions)
    any_found = any(verdict.outcome == "found" for verdict in state.verdicts)
    return not state.confirmations and (unproven or any_found)


def left_out(tuning: FinishedTuning) -> list[LeftOut]:
    """What ran faster and is neither written nor suggested, with its cause, each once."""
    entries = {entry.what: entry for entry in tuning.state.left_out}
    for ratio, candidate, against in _faster(tuning):
        if against:
            clause = f". It {against.clause.rstrip('.')}."
            entry = LeftOut(candidate.label, ratio, against.cause, clause)
            entries.setdefault(candidate.label, entry)
    return list(entries.values())


def _faster(tuning: FinishedTuning) -> list[tuple[float, Candidate, Objection | None]]:
    """Candidates beyond a tie, fastest first, with what is against them: a clause.

    One whose every change the program ignores ran as the original: chance made it faster.
    """
    state = tuning.state
    refused: dict[str, Objection] = {}
    ran: list[tuple[float, Candidate]] = []
    for attempt in tuning.lab.attempts:
        candidate, run = attempt.request.variant.candidate, attempt.run
        if (
            isinstance(attempt.result, Failure)
            and attempt.result.kind not in confirm.INCONCLUSIVE
        ):
            clause = f"failed in another run: {attempt.result.evidence}"
            refused[candidate.key] = Objection("failed", clause)
        if run is None or not candidate.changes or not state.originals:
            continue
        if attempt.request.purpose in {"search", "confirm"} and (
            against := _refusal(state, run)
        ):
            refused[candidate.key] = against
        verdicts = [state.verdict_on(change) for change in candidate.changes]
        followed = any(
            verdict is None or verdict.outcome != "ignored" for verdict in verdicts
        )
        if attempt.request.purpose == "search" and followed:
            ran.append((state.gain_over(state.steady_originals, run), candidate))
    ran.sort(key=lambda pair: -pair[0])
    threshold = 1 + state.tie_threshold
    return [
        (ratio, candidate, refused.get(candidate.key))
        for ratio, candidate in ran
        if ratio > threshold
    ]


def _refusal(state: TunerState, run: Run) -> Objection | None:
    """What is against a candidate that ran so."""
    if against := unusable(state, run):
        return against
    broken = state.context.objective.broken(run)
    clause = f"was outside of {broken[0].text}" if broken else ""
    return Objection("outside-bound", clause) if broken else None


ENDED = 2.0
"""An ended trial is planned at so many times what it ran.

Judgement: nothing tells how long it would have taken, only that it is longer."""


def needed_budget_s(state: TunerState) -> float:
    """Budget for the steps that this one lacked."""
    needed_s = [
        entry.needed_s * (ENDED if entry.cause == "time-limit" else 1.0)
        for entry in state.skipped
    ]
    missing_s = (
        n - entry.remaining_s for n, entry in zip(needed_s, state.skipped, strict=True)
    )
    return reserves.budget_for(
        state, max(0.0, sum(needed_s) - state.remaining_s, *missing_s)
    )


NAMED_CPUS = 0.05
"""CPUs; a program that keeps fewer busy is not named.

Source: `contention.LEAST_CPUS`, below which no reading names one. Judgement: less blames daemons
that every host has, more hides a small job on two CPUs."""
MOST_NAMED = 3
"""Most files or programs that a sentence names.

Judgement: more make a sentence that nobody reads to its end, fewer hide the one that the user
knows."""
SATURATED = 0.9
"""Share of the CPUs from which all count as busy.

Judgement: smaller denies workers to a program that has CPUs left. Larger offers them where they
only take the program's own."""
MOST_WAIT = 0.9
"""Largest share of waiting that counts for a need of CPUs: ten times as many are asked for at most.

Judgement: from 99 to 99.5 % of waiting the number would double, which no measurement holds."""


def caveats(tuning: FinishedTuning) -> Iterator[str]:
    """Notes on the figures, most important first."""
    state, target, attempts = tuning.state, tuning.target, tuning.lab.attempts
    real = [a.result for a in attempts if a.result.isolation != "overlay"]  # it keeps none
    created = {path for result in real for path in result.files_created}
    if changed := {path for result in real for path in result.files_changed} - created:
        yield f"The command altered or removed files of yours: {named(changed)}."
    yield from filter(None, map(collapsed, state.confirmations))
    tried = {
        suggestion.title: suggestion.outcome
        for suggestion in state.suggestions
        if suggestion.outcome is not None
    }
    after = [
        run for step in (*state.confirmations, *tried.values()) for run in step.runs(AFTER)
    ]
    if unread := output_check.unread(state.originals, after):
        yield (
            f"{named(unread)}: the content differs from the original's, and this format is not "
            "compared. Look at them before you trust the result."
        )
    yield from filter(None, (tuning.lab.run_cache.set_aside, target.note))
    if any(BEFORE_TRAINING in run.notes for run in state.originals):
        yield f"{BEFORE_TRAINING}."
    elsewhere = {run.device_note for run in state.originals if run.device_note}
    yield from elsewhere
    if tuning.unseen_card:
        yield (
            f"NVML does not show {tuning.unseen_card}: its utilisation, power, energy and clocks "
            "were not read, nor other programs on it."
        )
    if not state.context.has_gpu and not elsewhere:
        yield "All of this was measured on this CPU. It says nothing about a GPU."
    yield from map(followed, state.followed)
    for entry in state.left_out:
        if not entry.is_open:
            yield f"Faster, and not suggested: {entry.text}"
    titles = {advice.title for advice in tuning.advice}
    titles |= {
        suggestion.title for suggestion in state.suggestions if suggestion.unfinished
    }
    open_ones = {
        title: sentence
        for title, step in tried.items()
        if (sentence := undecided(step, title))
    }
    yield from open_ones.values()
    if unproven := sorted(tried.keys() - titles - open_ones.keys()):
        yield f"Tried, and not proven to gain: {', '.join(unproven)}."
    runs = [a.run for a in attempts if a.request.purpose == "confirm" and a.run is not None]
    for source_of_rate in sorted({run.rate_source for run in runs}):
        yield f"Throughput was counted by {source_of_rate}."
    if created:
        yield f"The command wrote outside the trials' scratch folders: {named(created)}."


def followed(effect: Followed) -> str:
    """Sentence on a value that the program follows, whatever its name."""
    before, after = numbers.count(effect.before), numbers.count(effect.after)
    suspect, words = effect.move.suspect, REGISTRY[effect.sign.kind].words
    return (
        f"Found by experiment: `{suspect.path}` ({words}). With "
        f"{effect.move.new} in place of {suspect.value} the program showed {after}, not {before}."
    )


def named(paths: Iterable[str]) -> str:
    """First of these files, and the number of others."""
    files = [f"`{path}`" for path in sorted(paths)]
    more, names = len(files) - MOST_NAMED, ", ".join(files[:MOST_NAMED])
    return f"{names} and {more} more" if more > 0 else names


def collapsed(proof: Comparison) -> str:
    """Sentence on runs that fell far behind their arm; empty without any."""
    arms = proof.ab_test.by_name.items()
    slow = {arm.variant.label: proof.collapsed(name) for name, arm in arms}
    counts = " and ".join(f"{many} of {label}" for label, many in slow.items() if many)
    if not counts:
        return ""
    return (
        f"In the {len(proof.counted)} rounds of the comparison {counts} ran at less than half the "
        "speed of the others. All of them count."
    )


def unused_gpu(runs: Sequence[Run], gpus: Sequence[Gpu]) -> str:
    """Sentence on a card left idle; empty without one."""
    if not gpus or not any((run.effects.device or "").startswith("cpu") for run in runs):
        return ""
    return (
        f"Your program does not use the {gpus[0].name}: its model computed on the CPU. "
        "`gpu-advisor doctor -- COMMAND` shows if its torch sees the card; "
        "else look for a missing `.cuda()` or `device` setting."
    )


def are_cpus_busy(runs: Sequence[Run], cpus: int) -> bool:
    """True if the program itself keeps all CPUs at work, so that workers would share them."""
    return (
        min((run.disturbance.own_cpus or 0.0 for run in runs), default=0)
        >= SATURATED * cpus
    )


def more_cpus(runs: Sequence[Run], machine: Machine) -> str:
    """Sentence on CPUs to request; empty where they hold nothing back.

    Without the wait the loader needs CPUs in proportion: a unit stays as much work.
    """
    waits = [run.wait_share or 0.0 for run in runs]
    busy = [run.disturbance.own_cpus or 0.0 for run in runs]
    if machine.allocation is None or min(waits, default=0.0) < WAITING:
        return ""
    if not are_cpus_busy(runs, machine.cpus):
        return ""
    waited, used = statistics.fmean(waits), statistics.fmean(busy)
    gain = 1 / (1 - min(waited, MOST_WAIT))
    return (
        f"This allocation, of {numbers.many(machine.cpus, 'CPU')}, holds the program back. It kept "
        f"{used:.1f} of them busy and waited for data {numbers.percent(waited)} of the time. "
        f"Request `--cpus-per-task={math.ceil(used * gain)}`: at most {numbers.ratio(gain)} "
        "(estimated, with a worker on each)."
    )


def unprotected(runs: Sequence[Run]) -> str:
    """Missing protection of the user's files, if any."""
    texts = [note for run in runs if run.isolation == "guard" for note in run.notes]
    text = next((note for note in texts if note.startswith("not isolated")), "")
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def load_of(tuning: FinishedTuning, everything: Sequence[Run]) -> str:
    """Background load during the comparison, else during `everything`."""
    proofs = tuning.state.confirmations
    runs = [
        run for step in proofs for run in (*step.runs(BEFORE), *step.runs(AFTER))
    ] or everything
    steps = proofs or [
        suggestion.outcome for suggestion in tuning.state.suggestions if suggestion.outcome
    ]
    used = any(step.used_contended_rounds for step in steps)
    note = load_note(runs, neighbours(everything), tuning.machine.cpus)
    return f"{note} {UNDER_LOAD}" if note and used else note


def load_note(runs: Sequence[Run], who: Sequence[Neighbour], cpus: int) -> str:
    """Sentences on load, heat and neighbours beside `runs`; empty without any."""
    cpus_taken = [
        run.disturbance.others_cpus
        for run in runs
        if run.disturbance.others_cpus is not None
    ]
    disturbed = [run.disturbance for run in runs if run.disturbance.disturbed]
    notes = []
    reasons = dict.fromkeys(
        reason for disturbance in disturbed for reason, _ in disturbance.clocks_held
    )
    if reasons:
        notes.append(f"The GPU slowed down by itself: {', '.join(reasons)}.")
    if processes := max(
        (disturbance.foreign_gpu_pids or 0 for disturbance in disturbed), default=0
    ):
        notes.append(
            f"{numbers.many(processes, 'other process')} computed on the GPU meanwhile."
        )
    if runs and not cpus_taken:
        notes.append("Background load could not be read on this machine.")
    elif any(
        not disturbance.clocks_held and not disturbance.foreign_gpu_pids
        for disturbance in disturbed
    ):
        mean = numbers.number(statistics.fmean(cpus_taken), 2)
        busy = [neighbour for neighbour in who[:MOST_NAMED] if neighbour.cpus >= NAMED_CPUS]
        listed = ", ".join(
            f"{neighbour.name} up to {neighbour.cpus:.1f}" for neighbour in busy
        )
        names = f" ({listed})" if listed else ""
        of = numbers.many(cpus, "CPU")
        notes.append(f"Measured under background load: others held {mean} of {of}{names}.")
    return " ".join(notes)
