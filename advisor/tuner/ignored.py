"""Quality knobs that are not tuned: do they do anything at all? One experiment tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor import knobs
from advisor.executor.requests import TrialRequest, Variant
from advisor.model import Change, Knob, MeasurePlan, leaf_of
from advisor.tuner import effects
from advisor.tuner.asking import SearchStep, Stage, tried
from advisor.tuner.standing import Result, TunerState, key_of
from advisor.tuner.steps import LADDER, tidy_steps

if TYPE_CHECKING:
    from collections.abc import Generator

    from advisor.model import Candidate, Run

PROBED = ("sample_num", "image_size")


def settle_quality(now: TunerState) -> Stage:
    """Change every other quality knob in one experiment: what alters nothing is ignored.

    The experiment is not a candidate: both arms run with as few steps as the schedule allows, to
    their own end, so that a minute-long program answers in seconds.
    """
    suspects = [*now.of_kind(*PROBED), *look_alikes(now)]
    doubtful = [knob for knob in suspects if poke(knob) and can_be_poked(now, knob)]
    base = with_few_steps(now)
    if doubtful:
        now, before = yield from ran(now, base)
        if before is not None:
            now = yield from compare(now, doubtful, base, before)
    return now


def ran(
    now: TunerState, candidate: Candidate
) -> Generator[SearchStep, Result, tuple[TunerState, Run | None]]:
    """`candidate` in the experiment; None where it failed or did not fit."""
    plan = MeasurePlan(mode="whole") if now.iterative else now.plan(candidate)
    request = TrialRequest(
        variant=Variant(candidate=candidate),
        purpose="effects",
        plan=plan,
        command="quality" if now.iterative else "own",
        expected_s=now.price_s,
    )
    now, attempt = yield from tried(now, request, kept_s=0.0, matters=False)
    return now, attempt.run if attempt else None


def with_few_steps(now: TunerState) -> Candidate:
    """The best candidate with the fewest sampling steps its linked schedule can be moved to."""
    for knob in now.of_kind("timesteps"):
        if not isinstance(knob.value, int) or not knob.editable:
            continue
        for share in reversed(LADDER):
            fewer = now.with_value(knob, max(tidy_steps(knob.value * share), min(10, knob.value)))
            if not isinstance(fewer, knobs.InvalidChange):
                return fewer
    return now.best


def look_alikes(now: TunerState) -> list[Knob]:
    """Values outside the catalogue that carry a probed knob's name: they deserve the same doubt."""
    names = {leaf_of(knob.path): knob.kind for knob in now.of_kind(*PROBED)}
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
        for source in now.facts.sources
        for trap in source.findings.traps
        if (leaf := leaf_of(trap.path)) in names and trap.path in source.document.scalars
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


def can_be_poked(now: TunerState, knob: Knob) -> bool:
    """Whether its document can hold the other value: it is no reference, and not computed."""
    document = now.facts.source(knob.document).document
    return all(document.takes(change.path, change.new) for change in poke(knob))


def compare(now: TunerState, doubtful: list[Knob], base: Candidate, before: Run) -> Stage:
    """All of them at once; one by one only if that changed something."""
    together = base.with_changes(*(change for knob in doubtful for change in poke(knob)))
    now, after = yield from ran(now, together)
    if after is not None and not effects.differences(before, after):
        for knob in doubtful:
            now = nothing_happened(now, knob, after)
        return now
    for knob in doubtful:
        now, alone = yield from ran(now, base.with_changes(*poke(knob)))
        if alone is None:
            now = now.settle(key_of(knob), "listed", "fails-at-half")
        elif changed := effects.differences(before, alone):
            now = now.settle(
                key_of(knob), "listed", "changes-the-product", what=" and ".join(changed)
            )
        else:
            now = nothing_happened(now, knob, alone)
    return now


def nothing_happened(now: TunerState, knob: Knob, run: Run) -> TunerState:
    """The program ignores it; with what overrides it where the probe saw that."""
    override = effects.overriding(knob.path, poke(knob)[0].new, run)
    shapes = ", ".join(run.effects.input_shapes) if knob.kind == "image_size" else ""
    return now.settle(
        key_of(knob),
        "ignored",
        "changes-nothing",
        tried=", ".join(str(change.new) for change in poke(knob)),
        override=override,
        shapes=shapes or None,
    )
