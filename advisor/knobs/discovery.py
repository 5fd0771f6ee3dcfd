"""Discovery of knobs by experiment with suspected values.

A setting whose name says nothing is found by what it does. The batch, the workers, the
accumulation and a sampler's steps are observed in a run; values that equal such a count are
suspects. Each is moved to a value of its own, and the count that follows it names the setting.
"""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from advisor.config import Document
from advisor.knobs.candidate_values import is_ban
from advisor.knobs.catalogue import table_of
from advisor.knobs.constraints import find_links
from advisor.knobs.registry import REGISTRY
from advisor.knobs.tree import Findings, Leaf, leaves, number_of, parts_of
from advisor.model import SAMPLER_FORWARDS, Effects, JsonScalar, Knob, Phase


class Sign(NamedTuple):
    """Way a setting shows: its value over those that share it."""

    shown_in: str
    """Kind of count it shows in."""
    kind: str
    """Kind of setting: a global batch may show in the accumulation."""
    over: tuple[Literal["update", "rank", "batch"], ...] = ()
    times: float = 1.0
    scope: str | None = None

    def shown(self, value: JsonScalar, seen: Effects) -> float | None:
        """Expected observation; None if `value` cannot be such a setting."""
        number = number_of(value)
        shares = {
            "update": seen.accumulation,
            "rank": seen.group_size or seen.world_size,
            "batch": seen.batch_asked or seen.batch,
        }
        parts = math.prod(float(shares[name] or 1) for name in self.over)
        return None if number is None else round(number * self.times / parts, 6)


SIGNS = (
    Sign("batch_size", "batch_size"),
    Sign("batch_size", "batch_size", ("update",), scope="global"),
    Sign("batch_size", "batch_size", ("rank",), scope="global"),
    Sign("batch_size", "batch_size", ("update", "rank"), scope="global"),
    Sign("num_workers", "num_workers"),
    Sign("grad_accum", "grad_accum"),
    Sign("grad_accum", "batch_size", ("rank", "batch"), scope="global"),
    Sign("timesteps", "timesteps"),
    Sign("timesteps", "timesteps", times=2.0),
)
"""The plainest of a kind first."""
KINDS = tuple(dict.fromkeys(sign.shown_in for sign in SIGNS))


def observed(kind: str, seen: Effects) -> float | None:
    """Count of one kind; None if too common to be a sign."""
    count, threshold = {
        "batch_size": (seen.batch if seen.batch_asked is None else seen.batch_asked, 1),
        "num_workers": (seen.workers, 0),
        "grad_accum": (seen.accumulation, 2),
        "timesteps": (seen.forwards_per_unit, SAMPLER_FORWARDS),
    }[kind]
    return float(count) if count is not None and count >= threshold else None


def open_kinds(
    documents: Iterable[Findings],
    seen: Effects,
    kinds: Sequence[str],
    phases: Sequence[str],
) -> tuple[str, ...]:
    """Observed kinds that no knob of these or else any phases explains."""
    knobs = [knob for findings in documents for knob in findings.knobs]
    open_ = []
    for kind in KINDS:
        if kind not in kinds or observed(kind, seen) is None:
            continue
        alike = [knob for knob in knobs if knob.kind == kind]
        in_phase = [knob for knob in alike if knob.phase in phases]
        if not any(_may_explain(knob, seen) for knob in in_phase or alike):
            open_.append(kind)
    return tuple(open_)


def _may_explain(knob: Knob, seen: Effects) -> bool:
    """True for a knob that shows so, or that cannot be compared."""
    if knob.kind == "batch_size" and knob.unit not in (None, "sample"):
        return True
    wanted = (None, observed(knob.kind, seen))
    values = knob.value if isinstance(knob.value, tuple) else (knob.value,)
    signs = [sign for sign in SIGNS if sign.shown_in == knob.kind]
    return any(sign.shown(value, seen) in wanted for value in values for sign in signs)


@dataclass(frozen=True, slots=True)
class Suspect:
    """Value that may decide an observation."""

    document: str
    path: str
    value: JsonScalar
    signs: tuple[Sign, ...]
    named: bool
    """Its name speaks for the kind."""
    built: bool
    """Among the parts of a network or an optimizer."""

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(sign.shown_in for sign in self.signs)


def find_suspects(
    sources: Iterable[tuple[Document, Findings]], seen: Effects, kinds: Sequence[str]
) -> tuple[Suspect, ...]:
    """Suspects for the observations, the likeliest first."""
    every = [
        suspect
        for document, findings in sources
        for leaf in _unknown(document, findings)
        if (suspect := _suspect(document.name, leaf, seen, kinds)) is not None
    ]
    free = {kind for suspect in every if not suspect.built for kind in suspect.kinds}
    kept = (suspect for suspect in every if not suspect.built or suspect.kinds - free)
    return tuple(sorted(kept, key=lambda suspect: not suspect.named))


def _suspect(
    document: str, leaf: Leaf, seen: Effects, kinds: Sequence[str]
) -> Suspect | None:
    table, words = table_of("suspects.toml"), _words_in(leaf.name)
    named = {
        kind
        for kind, kind_words in table["speaks"].items()
        if not words.isdisjoint(kind_words)
    }
    against = table["never"] if named else [*table["never"], *table["against"]]
    if not words.isdisjoint(against):
        return None
    assert not isinstance(leaf.value, tuple)
    signs = tuple(
        sign
        for sign in SIGNS
        if sign.shown_in in kinds
        and sign.shown(leaf.value, seen) == observed(sign.shown_in, seen)
        and (not named or sign.kind in named)
    )
    if not signs:
        return None
    built = not named and not _words_in(*leaf.ancestors).isdisjoint(table["built"])
    return Suspect(document, leaf.path, leaf.value, signs, bool(named), built)


def _unknown(document: Document, findings: Findings) -> list[Leaf]:
    """Movable values unknown to the finder."""
    known_paths = {
        *(knob.path for knob in findings.knobs),
        *(trap.path for trap in findings.traps),
        *(path for link in findings.links for path in link.paths),
        *findings.outputs,
    }
    every = leaves(document.scalars)
    return [leaf for leaf in every if leaf.path not in known_paths and _movable(leaf)]


def _movable(leaf: Leaf) -> bool:
    """True for a whole, editable number that no comment protects."""
    number = number_of(leaf.value)
    if not leaf.scalar.editable or number is None or number < 0 or not number.is_integer():
        return False
    return not is_ban(leaf.comment)


def _words_in(*names: str) -> frozenset[str]:
    words = (word for name in names for word in name.split("_"))
    return frozenset(re.sub(r"\d+$", "", word) or word for word in words)


def better_half(
    suspected: Sequence[Suspect], open_: Mapping[Suspect, frozenset[str]]
) -> tuple[Suspect, ...]:
    """Likelier half of each doubtful kind's suspects."""
    kept: set[Suspect] = set()
    for kind in KINDS:
        alike = [suspect for suspect in suspected if kind in open_[suspect]]
        kept.update(alike[: (len(alike) + 1) // 2])
    return tuple(suspect for suspect in suspected if suspect in kept)


# Record: benchmarks/results/discovery-cpu2.md: all of them together find 96 to 100 % of settings
# without a known name, and none wrongly. Each by itself is judgement.
MOST = 16
"""Values moved in one run: with more a program would hardly run."""
MULTIPLES = (2, 4, 8, 16)
"""Tried first: of two multiples one divides the other, as heads and widths need."""
MOST_WORKERS = 8
"""Most that may be the workers, or twice the present value where that is more.

Judgement: each is a process, so more may fill the memory of a small host. Fewer leaves too few
values to tell settings apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    suspect: Suspect
    new: JsonScalar


def trial_values(
    suspected: Sequence[Suspect],
    seen: Effects,
    *,
    room: float = 1e9,
    lower: bool = False,
    backwards: bool = False,
) -> tuple[Move, ...]:
    """Distinct value for each suspect; indistinguishable ones are left out.

    Of equal ones the later get larger values, `backwards` smaller: if one must divide
    another, it does in one. `room`: memory, as a multiple. `lower`: smaller values first.
    """
    alike: dict[tuple[JsonScalar, str], list[Suspect]] = {}
    for suspect in suspected[:MOST]:
        alike.setdefault((suspect.value, type(suspect.value).__name__), []).append(suspect)
    # In a shared update the batch that shows depends on the new accumulation.
    groups = sorted(alike.values(), key=lambda group: not _in_accumulation(group))
    worlds = [seen]
    taken = {(kind, observed(kind, seen)) for kind in KINDS}
    chosen: dict[Suspect, JsonScalar] = {}
    for group in groups:
        values = _apart(group, worlds, taken, _alternatives(group, seen, room, lower=lower))
        values.sort(key=lambda value: number_of(value) or 0.0, reverse=backwards)
        chosen |= dict(zip(group, values, strict=False))
        if _in_accumulation(group):
            numbers = [number for value in values if (number := number_of(value))]
            worlds += [replace(seen, accumulation=number) for number in numbers]
            taken |= {("batch_size", math.floor(_of_one_update(seen) / n)) for n in numbers}
    return tuple(
        Move(suspect=suspect, new=chosen[suspect])
        for suspect in suspected
        if suspect in chosen
    )


def _in_accumulation(group: Sequence[Suspect]) -> bool:
    return any(sign.kind == "grad_accum" for suspect in group for sign in suspect.signs)


def _of_one_update(seen: Effects) -> float:
    """Samples in one update of one rank."""
    return float(seen.batch_asked or seen.batch or 1) * (seen.accumulation or 1.0)


def _apart(
    group: Sequence[Suspect],
    worlds: Sequence[Effects],
    taken: set[tuple[str, float | None]],
    values: Iterable[JsonScalar],
) -> list[JsonScalar]:
    """One value for each of `group`, whose effects no other value has."""
    signs = dict.fromkeys(sign for suspect in group for sign in suspect.signs)
    distinct_values: list[JsonScalar] = []
    for value in values:
        if len(distinct_values) == len(group):
            break
        here = [sign.shown(value, worlds[0]) or 0.0 for sign in signs]
        counts = {
            (sign.shown_in, math.floor(sign.shown(value, world) or 0.0))
            for world in worlds
            for sign in signs
        }
        is_whole = all(count >= 1 and count.is_integer() for count in here)
        if is_whole and not counts & taken:
            taken |= counts
            distinct_values.append(value)
    return distinct_values


def _alternatives(
    group: Sequence[Suspect], seen: Effects, room: float, *, lower: bool
) -> Iterator[JsonScalar]:
    """Values for a group, safest first, in the present spelling."""
    old, kinds = group[0].value, {kind for suspect in group for kind in suspect.kinds}
    value = int(number_of(old) or 0)
    limit = room * value
    if "num_workers" in kinds:
        limit = min(limit, max(MOST_WORKERS, 2 * value))
    if _in_accumulation(group):  # no update has less than one sample a batch
        limit = min(limit, _of_one_update(seen))
    times = [value * n for n in MULTIPLES if value and value * n <= limit]
    parts = [value // n for n in MULTIPLES if value % n == 0 and value // n > 1]
    # more of it takes longer to show
    costly = kinds <= {"timesteps", "num_workers", "grad_accum"}
    first = [*parts, *times] if lower or costly else [*times, *parts]
    more, less = range(value + 1, value + 4 * MOST), range(value - 1, 0, -1)
    like = type(old)
    assert like in (int, float, str)
    for new in itertools.chain(first, *((more, less) if times else (less, more))):
        yield like(new)


class Followed(NamedTuple):
    """Value that the program follows, whatever its name."""

    move: Move
    sign: Sign
    before: float
    """Observations with the present and with the moved value."""
    after: float


def read_outcome(
    moved: Sequence[Move], before: Effects, after: Effects, kinds: Iterable[str]
) -> tuple[list[Followed], set[str]]:
    """Moved values that show as predicted, and kinds that none explains."""
    followed: list[Followed] = []
    unclear: set[str] = set()
    for kind in kinds:
        old, new = observed(kind, before), observed(kind, after)
        if new is not None and new == old:
            continue
        traced = ((move, _trace_to(move, kind, after, new)) for move in moved)
        explanations = [(move, sign) for move, sign in traced if sign is not None]
        # A batch over an accumulation that moved with it is the quotient by definition.
        plain = [
            (move, sign)
            for move, sign in explanations
            if not sign.over and sign.times == 1.0
        ]
        explanations = plain or explanations
        if len(explanations) != 1 or old is None or new is None:
            unclear.add(kind)
            continue
        followed.append(Followed(*explanations[0], before=old, after=new))
    return followed, unclear


def _trace_to(move: Move, kind: str, after: Effects, new: float | None) -> Sign | None:
    """Plainest sign by which the moved value shows as `new`."""
    for sign in move.suspect.signs:
        exact = sign.shown(move.new, after)
        if (
            sign.shown_in == kind
            and exact is not None
            and new in (exact, math.floor(exact))
        ):
            return sign
    return None


def joined(
    document: Document, findings: Findings, followed: Iterable[Followed], phase: Phase
) -> Findings:
    every = {one.move.suspect: one for one in followed}
    mine = [
        outcome for suspect, outcome in every.items() if suspect.document == document.name
    ]
    if not mine:
        return findings
    knobs = (*findings.knobs, *(_knob(outcome, phase) for outcome in mine))
    links = find_links(document.name, leaves(document.scalars), knobs)
    return replace(findings, knobs=knobs, links=links)


def _knob(outcome: Followed, phase: Phase) -> Knob:
    suspect, kind = outcome.move.suspect, REGISTRY[outcome.sign.kind]
    phase = kind.phase or phase
    return Knob(
        document=suspect.document,
        path=suspect.path,
        kind=kind.kind,
        phase=phase,
        knob_class=kind.class_in(phase),
        value=suspect.value,
        unit=kind.unit,
        scope=outcome.sign.scope,
        why=f"`{parts_of(suspect.path)[-1]}`: {kind.words}, by experiment",
    )
