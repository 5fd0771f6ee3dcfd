"""Quality knobs: sampling steps inside a declared tolerance, and proof that others do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor import documents, knobs
from advisor.model import Candidate, Change, Failure, Knob, MeasurePlan, Run
from advisor.quality import judge, measure_key, read_measures
from advisor.tuning import effects
from advisor.tuning.runner import OverBudgetError
from advisor.tuning.search import Search, left_alone, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.versions import Versions

LADDER = (0.5, 0.25, 0.1, 0.05, 0.025, 0.01)
"""Shares of the original steps, tried in turn until one is out of tolerance."""


def tune_steps(search: Search, quality_command: documents.Document, versions: Versions) -> None:
    """Fewer sampling steps while every declared quality measure stays inside its tolerance."""
    measures = search.workload.quality
    for knob in search.undecided("timesteps"):
        if not isinstance(knob.value, int) or isinstance(knob.value, bool) or knob.value < 2:
            search.decide(knob, "listed", f"{knob.value!r} is no plain count; left alone.")
        elif not measures:
            search.decide(
                knob,
                "listed",
                "Fewer steps change the result, and no quality measure is declared in "
                "gpu-advisor.toml; a measure with a tolerance is the consent to trade.",
            )
        else:
            try:
                found = reference_quality(search, quality_command, versions)
                if found is None:
                    search.decide(
                        knob,
                        "refused",
                        "The original's quality could not be measured: "
                        "the declared patterns did not match its output.",
                    )
                else:
                    descend(search, knob, knob.value, quality_command, *found)
            except OverBudgetError as problem:
                search.over_budget(knob.path, problem)
                search.decide(knob, "skipped", "The budget was spent before its quality runs.")


def quality_run(
    search: Search, candidate: Candidate, command: documents.Document, expected_s: float
) -> Run | Failure:
    """The quality command with `candidate`, to its own end."""
    return search.runner.measure(
        candidate,
        "quality",
        MeasurePlan(mode="whole"),
        expected_s=expected_s,
        command_line=command,
    )


def reference_quality(
    search: Search, command: documents.Document, versions: Versions
) -> tuple[dict[str, float], float] | None:
    """What tolerances are taken from, and the seconds one quality run of the best takes.

    The reference is the original's quality: kept from before the first rewrite, else measured once
    and kept. Where the original is too slow for the budget the best free candidate stands in, and
    a note says so: free knobs cannot change results. None when the measures were not printed.
    """
    assert search.best is not None
    measures = search.workload.quality
    key = measure_key(measures, search.runner.program.argv(Candidate(), command))
    kept = versions.quality_reference(key)
    free = quality_run(search, search.best_candidate, command, 3 * search.expected_s())
    if isinstance(free, Failure):
        search.notes.append(f"The quality run failed: {free.kind}. {free.evidence}")
        return None
    values = read_measures(measures, free.stdout_tail)
    if set(values) != set(measures):
        return None
    search.quality_before = values
    if search.best_candidate.changes:
        slower = search.best.units_per_s / search.original.units_per_s
        try:
            original = quality_run(search, Candidate(), command, free.wall_s * slower)
        except OverBudgetError:
            search.notes.append(
                "The original's quality was measured with the free settings in place, which cannot "
                f"change results: by itself it would have taken {free.wall_s * slower:.0f} s."
            )
        else:
            if isinstance(original, Run):
                search.quality_before = read_measures(measures, original.stdout_tail)
    if kept is None:
        versions.keep_quality_reference(key, search.quality_before)
    reference = kept or search.quality_before
    if not all(j.within for j in judge(measures, reference, values)):
        search.notes.append(
            f"{search.best_candidate.label} moved the quality out of tolerance although none of "
            "its knobs should change results; it was dropped."
        )
        search.adopt(Candidate(), search.original)
    return reference, free.wall_s


def descend(
    search: Search,
    knob: Knob,
    original: int,
    command: documents.Document,
    reference: dict[str, float],
    quality_s: float,
) -> None:
    """Down the ladder on top of the best free candidate; the last rung inside tolerance stays."""
    assert search.best is not None
    evidence = [
        f"{original} steps: " + ", ".join(f"{n} {v:g}" for n, v in search.quality_before.items())
    ]
    ids: list[str] = []
    chosen: tuple[Candidate, dict[str, float], int] | None = None
    reason = "the ladder ended"
    for share in LADDER:
        value = tidy_steps(original * share)
        if value < 1 or value >= original:
            continue
        candidate = search.with_value(knob, value)
        if isinstance(candidate, knobs.Refusal):
            reason = candidate.reason
            evidence.append(f"{value} steps: refused, {candidate.reason}")
            break
        result = quality_run(search, candidate, command, quality_s * value / original)
        ids.append(search.last_id())
        if isinstance(result, Failure):
            reason = f"{value} steps failed: {result.kind}"
            evidence.append(f"{value} steps: {result.kind} ({result.evidence})")
            break
        values = read_measures(search.workload.quality, result.stdout_tail)
        judgements = judge(search.workload.quality, reference, values)
        search.judgements += [(f"{value} steps", judgement) for judgement in judgements]
        evidence.append(
            f"{value} steps: "
            + ", ".join(
                f"{j.measure} {'not printed' if j.value is None else format(j.value, 'g')} "
                f"({'within' if j.within else 'beyond'} {j.limit:g})"
                for j in judgements
            )
        )
        if not all(judgement.within for judgement in judgements):
            beyond = next(j for j in judgements if not j.within)
            reason = f"{value} steps put {beyond.measure} beyond its limit {beyond.limit:g}"
            break
        chosen = (candidate, values, value)
    adopt_steps(search, knob, chosen, reason, evidence, ids)


def adopt_steps(
    search: Search,
    knob: Knob,
    chosen: tuple[Candidate, dict[str, float], int] | None,
    reason: str,
    evidence: list[str],
    ids: list[str],
) -> None:
    """Time the chosen rung like any candidate, and settle the knob."""
    assert search.best is not None
    if chosen is None:
        search.decide(
            knob, "refused", f"Kept at {knob.value}: {reason}.", evidence=evidence, trials=ids
        )
        return
    candidate, values, value = chosen
    result = search.run(candidate, whole_batches=1)
    ids.append(search.last_id())
    if isinstance(result, Failure):
        search.decide(
            knob,
            "refused",
            f"{value} steps failed when timed: {result.evidence}",
            evidence=evidence,
            trials=ids,
        )
        return
    change = next(c for c in candidate.changes if c.path == knob.path)
    if effects.verdict(change, search.best, result) == "ignored":
        override = effects.overriding(knob.path, value, result)
        why = "Ignored by the program: its forwards per unit did not change"
        search.decide(knob, "ignored", f"{why}; {override}." if override else f"{why}.", trials=ids)
        return
    evidence.append(f"{value} steps: {shown(result)} against {shown(search.best)}")
    if not search.faster(result, search.best):
        search.decide(knob, "kept", f"{value} steps were no faster.", evidence=evidence, trials=ids)
        return
    gain = result.units_per_s / search.best.units_per_s
    schedule = [c for c in candidate.changes if c.kind == "schedule"]
    moved = (
        "; the linked schedule moved: "
        + ", ".join(f"{c.path.rsplit('.', 1)[-1]} {c.old} to {c.new}" for c in schedule)
        if schedule
        else ""
    )
    search.adopt(candidate, result)
    search.quality_after = values
    search.decide(
        knob,
        "changed",
        f"{value} steps ran {gain:.2f}x as fast with every quality measure inside its "
        f"tolerance{moved}; the search stopped because {reason}.",
        new=value,
        evidence=evidence,
        trials=ids,
    )


def tidy_steps(steps: float) -> int:
    """A count people would write: two significant digits."""
    whole = max(1, round(steps))
    digits = len(str(whole))
    return round(whole, 2 - digits) if digits > 2 else whole


# --- quality knobs that are not tuned: do they do anything at all? ---------------------------

PROBED = ("sample_num", "image_size")


def settle_quality(search: Search, command: documents.Document) -> None:
    """Change every other quality knob in one experiment: what alters nothing is ignored.

    The experiment is not a candidate: both arms run with as few steps as the schedule allows, to
    their own end, so that a minute-long program answers in seconds.
    """
    doubtful = [knob for knob in [*search.of_kind(*PROBED), *look_alikes(search)] if poke(knob)]
    base = with_few_steps(search)
    plan = MeasurePlan(mode="whole") if search.iterative else search.plan(base)

    def ran(candidate: Candidate) -> Run | Failure:
        return search.runner.measure(
            candidate,
            "effects",
            plan,
            expected_s=search.expected_s(),
            command_line=command if search.iterative else None,
        )

    try:
        if doubtful and isinstance(before := ran(base), Run):
            compare(search, doubtful, base, before, ran)
    except OverBudgetError as problem:
        search.over_budget("effects of quality knobs", problem, matters=False)
    settle_unprobed(search)


def with_few_steps(search: Search) -> Candidate:
    """The best candidate with the fewest sampling steps its linked schedule can be moved to."""
    base = search.best_candidate
    for knob in search.of_kind("timesteps"):
        if not isinstance(knob.value, int) or not knob.editable:
            continue
        for share in reversed(LADDER):
            fewer = search.with_value(
                knob, max(tidy_steps(knob.value * share), min(10, knob.value))
            )
            if not isinstance(fewer, knobs.Refusal):
                base = fewer
                break
    return base


def look_alikes(search: Search) -> list[Knob]:
    """Values outside the catalogue that carry a probed knob's name: they deserve the same doubt."""
    names = {knob.path.rsplit(".", 1)[-1]: knob.kind for knob in search.of_kind(*PROBED)}
    return [
        Knob(
            document=source.document.name,
            path=trap.path,
            kind=names[leaf],
            phase="any",
            knob_class="quality",
            value=source.document.scalars[trap.path].value,
            editable=False,
            why=trap.why,
        )
        for source in search.sources
        for trap in source.findings.traps
        if (leaf := trap.path.rsplit(".", 1)[-1]) in names and trap.path in source.document.scalars
    ]


def poke(knob: Knob) -> tuple[Change, ...]:
    """Another legal value, to see whether anything happens: half of a count, item by item."""
    items = (
        {f"{knob.path}[{i}]": item for i, item in enumerate(knob.value)}
        if isinstance(knob.value, tuple)
        else {knob.path: knob.value}
    )
    return tuple(
        Change(
            document=knob.document,
            path=path,
            kind=knob.kind,
            knob_class=knob.knob_class,
            old=value,
            new=value // 2,
        )
        for path, value in items.items()
        if isinstance(value, int) and not isinstance(value, bool) and value >= 2
    )


def compare(
    search: Search,
    doubtful: list[Knob],
    base: Candidate,
    before: Run,
    ran: Callable[[Candidate], Run | Failure],
) -> None:
    """All of them at once; one by one only if that changed something."""
    together = base.with_changes(*(change for knob in doubtful for change in poke(knob)))
    after = ran(together)
    if isinstance(after, Run) and not effects.differences(before, after):
        for knob in doubtful:
            ignored(search, knob, after)
        return
    for knob in doubtful:
        alone = ran(base.with_changes(*poke(knob)))
        if isinstance(alone, Failure):
            why = f"At half its value the program fails ({alone.kind})"
        elif changed := effects.differences(before, alone):
            why = f"It changes {' and '.join(changed)}"
        else:
            ignored(search, knob, alone)
            continue
        search.decide(
            knob,
            "listed",
            f"{why}; never tuned: it changes the product.",
            trials=[search.last_id()],
        )


def ignored(search: Search, knob: Knob, run: Run) -> None:
    """Nothing happened: say so, with what overrides the knob where the probe saw it."""
    tried = ", ".join(str(change.new) for change in poke(knob))
    override = effects.overriding(knob.path, poke(knob)[0].new, run)
    shapes = ", ".join(run.effects.input_shapes)
    if knob.kind == "image_size" and shapes and not override:
        override = f"the model saw inputs of {shapes} either way"
    was = list(knob.value) if isinstance(knob.value, tuple) else knob.value
    why = f"Ignored by the program: {tried} instead of {was} changed nothing it computed or wrote"
    search.decide(
        knob,
        "ignored",
        f"{why}; {override}." if override else f"{why}.",
        trials=[search.last_id()],
    )


def settle_unprobed(search: Search) -> None:
    """Everything in the workload's phase that no stage decided: say why it was left alone."""
    for knob in search.all_knobs:
        if (knob.document, knob.path) in search.decisions:
            continue
        if not search.in_phase(knob):
            why = f"Belongs to the {knob.phase} phase; this command runs {search.workload.phase}."
            search.decide(knob, "kept", why)
        elif not knob.editable:
            search.decide(knob, "refused", left_alone(knob))
        elif knob.knob_class in {"training", "quality"}:
            search.decide(knob, "listed", f"Never tuned by itself: it is a {knob.knob_class} knob.")
        else:
            search.decide(knob, "kept", "No stage of the search touches this kind.")
