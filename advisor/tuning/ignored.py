"""Quality knobs that are not tuned: do they do anything at all? One experiment tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor import knobs
from advisor.model import Candidate, Change, Failure, Knob, MeasurePlan, Run
from advisor.tuning import effects
from advisor.tuning.runner import OverBudgetError
from advisor.tuning.search import Search, left_alone
from advisor.tuning.steps import LADDER, tidy_steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor import documents

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
            decide(search, knob, after)
        return
    for knob in doubtful:
        alone = ran(base.with_changes(*poke(knob)))
        if isinstance(alone, Failure):
            why = f"At half its value the program fails ({alone.kind})"
        elif changed := effects.differences(before, alone):
            why = f"It changes {' and '.join(changed)}"
        else:
            decide(search, knob, alone)
            continue
        search.decide(
            knob,
            "listed",
            f"{why}; never tuned: it changes the product.",
            trials=[search.last_id()],
        )


def decide(search: Search, knob: Knob, run: Run) -> None:
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
