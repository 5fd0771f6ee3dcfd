"""The first bad commit of a range, found with the gate's own rule.

The bad end is measured against the good one first; where nothing is proven slower there is nothing
to find. Then commits between them are measured against the good end, the one whose answer clears
most first. One that does not run, or that cannot be told from the threshold, is passed over for
another. All together share one budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from advisor.errors import InterruptedByUserError, NoBaselineError
from advisor.gate import allowances, attribution, base, commits
from advisor.gate.git import git
from advisor.gate.program import choose
from advisor.gate.records import Bisection, BisectStep, CommitEntry, Revision
from advisor.gate.verdict import belongs
from advisor.gate.workbench import machine_to_itself, measured, open_session, set_up

if TYPE_CHECKING:
    from advisor.executor.engines import Engine
    from advisor.gate.base import Checkout
    from advisor.gate.commits import Commit, Span, Suspects
    from advisor.gate.entries import Variant
    from advisor.gate.options import Options
    from advisor.gate.program import Program
    from advisor.gate.records import Attribution, GateRecord, HostEntry, Inputs
    from advisor.gate.workbench import Place

SHA_CHARS = 12
ENOUGH_MIN = 0.01
"""With less than this of the budget nothing is begun."""


def search(asked: Options, place: Place) -> GateRecord:
    """The record of the bad end against the good one, with the search in `bisection`."""
    head = base.head_checkout(place.cwd)
    programs = choose(head, asked.workloads, asked.command)
    span = commits.read(head, asked.bisect or "", first_parent=asked.first_parent)
    good = Revision(sha=span.good, ref="the good end")
    with (
        machine_to_itself(asked, place) as (engine, host),
        base.base_checkout(head, good, asked.links) as checkout,
    ):
        inputs = allowances.of_base(asked.inputs, checkout, [p.name for p in programs])
        walk = _Walk(
            asked=asked,
            place=place,
            head=head,
            good=checkout,
            engine=engine,
            host=host,
            left_min=inputs.max_minutes,
        )
        place.say(f"{len(span.suspects.commits)} commits; first the bad end against the good one")
        ends = walk.measure(span.suspects.commits[-1], programs, inputs)
        found, stopped = _narrowed(walk, span, programs, ends)
    first = found.suspects[0] if len(found.suspects) == 1 else None
    record = ends.model_copy(
        update={
            "bisection": found,
            "notes": [*ends.notes, *_remarks(head, span, asked, found)],
            "attribution": walk.moved.get(first.sha, []) if first else [],
        }
    )
    if stopped and place.cancel.is_set():
        return record.model_copy(update={"verdict": "invalid", "reason": stopped})
    return record.model_copy(update={"reason": _reason(ends, found, stopped)})


@dataclass(kw_only=True)
class _Walk:
    """What all comparisons of one search share."""

    asked: Options
    place: Place
    head: Checkout
    good: Checkout
    engine: Engine
    host: HostEntry
    left_min: float
    """Of the budget."""
    measurements: int = field(default=0, init=False)
    moved: dict[str, list[Attribution]] = field(default_factory=dict, init=False)
    """By commit that is proven slower: what differs from the good end."""

    def measure(self, commit: Commit, programs: tuple[Program, ...], inputs: Inputs) -> GateRecord:
        """`commit` against the good end. Raises NoBaselineError where it cannot be checked out."""
        self.measurements += 1
        scratch = self.place.scratch / f"commit-{self.measurements}"
        scratch.mkdir()
        place = replace(self.place, scratch=scratch)
        asked = replace(self.asked, inputs=inputs.model_copy(update={"max_minutes": self.left_min}))
        revision = Revision(sha=commit.sha, ref=commit.subject)
        with base.base_checkout(self.head, revision, asked.links) as checkout:
            arms: dict[Variant, tuple[Checkout, ...]] = {"base": (self.good,), "head": (checkout,)}
            session = open_session(asked, place, arms, programs, self.engine, self.host)
            set_up(asked, place, session, None if self.measurements == 1 else ("head",))
            record = measured(session, self.host, "bisect")
            self.left_min = min(self.left_min, session.left_s / 60)
            if record.verdict == "regression":
                self.moved[commit.sha] = attribution.of_red(session, record)
        return record


def _narrowed(
    walk: _Walk, span: Span, programs: tuple[Program, ...], ends: GateRecord
) -> tuple[Bisection, str | None]:
    """The search between the ends, and why it was broken off, if it was."""
    suspects = span.suspects
    found = Bisection(commits=len(suspects.commits), first_parent=walk.asked.first_parent)
    worst = ends.workloads[0] if ends.workloads else None
    if ends.verdict != "regression" or worst is None or worst.slowdown_pct is None:
        return found, ends.reason if walk.place.cancel.is_set() else None
    program = next(
        p for p, e in zip(programs, ends.programs, strict=True) if belongs(worst.name, e)
    )
    share = min(worst.threshold or ends.inputs.threshold, worst.slowdown_pct / 200)
    inputs = ends.inputs.model_copy(
        update={
            "only": worst.name,
            "threshold": share,
            "limits": {
                program.name: {**ends.inputs.limits.get(program.name, {}), worst.figure: share}
            },
        }
    )
    steps: list[BisectStep] = []
    stopped = None
    while (commit := suspects.ask()) is not None:
        left = math.ceil(math.log2(len(suspects.commits)))
        walk.place.say(f"{len(suspects.commits)} commits are left, about {left} more to measure")
        step, stopped = _step(walk, commit, program, inputs)
        if step is None:
            break
        walk.place.say(f"{commit.sha[:SHA_CHARS]} is {step.found}: {step.reason}")
        steps.append(step)
        suspects = _after(suspects, step)
        if stopped:
            break
    return (
        found.model_copy(
            update={
                "workload": worst.name,
                "threshold": share,
                "steps": steps,
                "suspects": [_entry(commit) for commit in suspects.commits],
            }
        ),
        stopped,
    )


def _step(
    walk: _Walk, commit: Commit, program: Program, inputs: Inputs
) -> tuple[BisectStep | None, str | None]:
    """What was found of `commit`, and why nothing more can be measured, if so."""
    if walk.left_min < ENOUGH_MIN:
        return None, _spent(walk)
    try:
        record = walk.measure(commit, (program,), inputs)
    except NoBaselineError as problem:
        return BisectStep(commit=_entry(commit), found="skipped", reason=str(problem)), None
    except InterruptedByUserError as problem:
        return None, str(problem)
    if walk.place.cancel.is_set():
        return None, record.reason
    entry = record.programs[0]
    found = {"regression": "bad", "pass": "good"}.get(record.verdict, "skipped")
    step = BisectStep.model_validate(
        {
            "commit": _entry(commit),
            "found": found,
            "reason": record.reason,
            "slowdown_pct": record.slowdown_pct,
            "ci_low_pct": record.ci_low_pct,
            "ci_high_pct": record.ci_high_pct,
            "pairs": record.pairs,
            "programs": record.programs,
        }
    )
    return step, _spent(walk) if found == "skipped" and entry.stopped else None


def _spent(walk: _Walk) -> str:
    return f"the budget of {walk.asked.inputs.max_minutes:g} minutes was spent (--max-minutes)"


def _after(suspects: Suspects, step: BisectStep) -> Suspects:
    if step.found == "skipped":
        return suspects.skip(step.commit.sha)
    return suspects.good(step.commit.sha) if step.found == "good" else suspects.bad(step.commit.sha)


def _entry(commit: Commit) -> CommitEntry:
    return CommitEntry(sha=commit.sha, subject=commit.subject)


# --- what is told -------------------------------------------------------------------------


def _reason(ends: GateRecord, found: Bisection, stopped: str | None) -> str:
    if found.workload is None:
        if ends.verdict == "pass":
            return f"nothing is slower at the bad end, so there is nothing to find. {ends.reason}"
        return f"the bad end was not proven slower, so nothing was searched. {ends.reason}"
    if len(found.suspects) == 1:
        first = found.suspects[0]
        return (
            f"{found.workload}: the first bad commit is {first.sha[:SHA_CHARS]} {first.subject!r}"
        )
    names = ", ".join(each.sha[:SHA_CHARS] for each in found.suspects)
    why = stopped or "the others cannot be measured, or told from what is allowed"
    return f"{found.workload}: the first bad commit is one of {names}: {why}"


def _remarks(head: Checkout, span: Span, asked: Options, found: Bisection) -> list[str]:
    """What a reader of the result has to know of the range."""
    notes = []
    if head.revision.dirty:
        notes.append("uncommitted changes are part of no commit: they were not measured")
    merges = [each for each in span.suspects.commits if len(each.parents) > 1]
    if merges and not asked.first_parent:
        notes.append(
            f"{len(merges)} of the commits are merges; those of branches that left after the good "
            "end were searched too, and --first-parent follows the main line alone"
        )
    first = found.suspects[0].sha if len(found.suspects) == 1 else None
    for merge in (each for each in merges if each.sha == first):
        into, brought = merge.parents[:2]
        parted = git(head.top, "merge-base", into, brought)
        if parted and parted != brought:
            notes.append(
                f"{merge.sha[:SHA_CHARS]} is a merge; to look into what it brought: --bisect "
                f"{parted[:SHA_CHARS]}..{brought[:SHA_CHARS]}"
            )
    return notes
