"""A larger model, rung by rung: the ladder that gpu-advisor.toml declares, on top of what was
proven.

Each rung runs once, in one process, with all that the rungs below it set. None of them competes
with a candidate and none is written: another model is another product.
"""

from __future__ import annotations

from dataclasses import replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from advisor.executor.requests import TrialRequest, Variant
from advisor.model import Change
from advisor.tuner.asking import tried
from advisor.tuner.facts import Climbed
from advisor.tuner.proof import proven_candidate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from advisor.config import Document
    from advisor.model import Candidate, JsonScalar
    from advisor.settings import LadderRung
    from advisor.tuner.asking import Stage
    from advisor.tuner.facts import Source
    from advisor.tuner.standing import TunerState

PARTS_S = 0.1
"""What fills the memory is told where the parts are run alone, of which nothing else is asked."""
FEWEST = 2
"""What the ladder stands on tells nothing by itself."""
MOST_SHOWN = 8
"""Values of a choice that are told."""


def climb(now: TunerState) -> Stage:
    """What was proven, and then rung after rung, until one fails or does not fit the budget."""
    rungs, run = rungs_of(now), now.best_run
    for number, (name, candidate) in enumerate(rungs):
        expected_s = now.prices.again_s(run)
        if expected_s * (FEWEST if number == 0 else 1) > now.remaining_s:
            what = f"the ladder from {name} on" if name else "the ladder of larger models"
            return now.skip(what, expected_s * (len(rungs) - number), matters=False)
        request = TrialRequest(
            variant=Variant(candidate=candidate),
            purpose="ladder",
            plan=now.plan(candidate, ceilings_workers=(0,), ceilings_s=PARTS_S),
            expected_s=expected_s,
            title=f"the rung {name}" if name else "",
        )
        now, attempt = yield from tried(now, request, kept_s=0.0, matters=False)
        if attempt is None:
            return now
        climbed = Climbed(name=name, result=attempt.result)
        now = replace(now, told=replace(now.told, rungs=(*now.told.rungs, climbed)))
        if attempt.run is None:
            return now
        run = attempt.run
    return now


def rungs_of(now: TunerState) -> list[tuple[str, Candidate]]:
    """What was proven, without a name, and each rung on top of it; none where none is declared."""
    found = [("", proven_candidate(now))]
    for rung in now.facts.workload.ladder:
        changes = changes_of(now.facts.sources, rung.set)
        found.append((rung.name, found[-1][1].with_changes(*changes)))
    return found if now.facts.workload.ladder else []


def changes_of(sources: Sequence[Source], values: Mapping[str, JsonScalar]) -> tuple[Change, ...]:
    """What a rung sets, each in the first document that has it."""
    found = []
    for path, value in values.items():
        source = next(each for each in sources if path in each.document.scalars)
        knob = source.findings.knob(path)
        found.append(
            Change(
                document=source.document.name,
                path=path,
                kind=knob.kind if knob else "larger_model",
                knob_class="quality",
                old=source.document.scalars[path].value,
                new=value,
                name=source.findings.name_of(path),
            )
        )
    return tuple(found)


# --- what cannot be set, said before anything runs ------------------------------------------


def why_refused(documents: Sequence[Document], ladder: Iterable[LadderRung]) -> str | None:
    """Which rung sets what is not there, or cannot be set so; None where all can be."""
    for rung in ladder:
        for path, value in rung.set.items():
            why = _why_not(documents, path, value)
            if why is not None:
                return f"the rung {rung.name!r} sets {path} = {value!r}, {why}"
    return None


def _why_not(documents: Sequence[Document], path: str, value: JsonScalar) -> str | None:
    document = next((each for each in documents if path in each.scalars), None)
    if document is None:
        names = " and ".join(each.name for each in documents)
        near = nearest(path, [known for each in documents for known in each.scalars])
        return f"which is not in {names}" + (f"; the nearest there is {near}." if near else ".")
    scalar = document.scalars[path]
    if not scalar.editable:
        return f"which cannot be set: {scalar.why or 'it is not written out'}."
    if scalar.choices and value not in scalar.choices:
        return f"which takes only {', '.join(map(str, scalar.choices[:MOST_SHOWN]))}."
    if not document.takes(path, value):
        return f"which {document.name} cannot hold there (it has {scalar.text})."
    return None


def nearest(path: str, known: Iterable[str]) -> str | None:
    """The path most like `path`, by the whole of it or by its last part; None without any."""

    def likeness(other: str) -> float:
        ends = (other, other.rpartition(".")[2])
        return max(SequenceMatcher(None, path, end).ratio() for end in ends)

    return max(known, key=likeness, default=None)
