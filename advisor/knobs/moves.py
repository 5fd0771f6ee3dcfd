"""Moving a knob together with everything that is linked to it, or refusing with the reason."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from advisor.knobs import multiples, schedule
from advisor.knobs.catalogue import catalogue
from advisor.knobs.tree import canonical, number_of, parts_of
from advisor.model import Change

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from advisor.config import Document
    from advisor.knobs.findings import Findings
    from advisor.model import JsonScalar, Knob, KnobConstraint


NOTHING: Mapping[str, JsonScalar] = MappingProxyType({})
MOST_SHOWN = 8
"""Values of a choice that are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidChange:
    """A knob that cannot be moved so, and why."""

    reason: str


def move(
    document: Document,
    findings: Findings,
    path: str,
    value: JsonScalar,
    beside: Mapping[str, JsonScalar] = NOTHING,
    *,
    beyond: bool = False,
) -> tuple[Change, ...] | InvalidChange:
    """The knob at `path` set to `value` and everything linked to it moved along, or why not.
    `beside`: what other values of the document are set to already. `beyond`: a batch may be larger
    than what the optimizer sees now, if nothing is accumulated then.

    Links that ask for nothing (`lr-batch`, `reference`) change nothing: where there is an
    accumulation the effective batch is kept, and with it the learning rate stays right.
    """
    knob = findings.knob(path)
    if knob is None:
        return InvalidChange(reason=f"{path} is no knob of {findings.document}")
    if not knob.editable:
        return InvalidChange(reason=f"{path}: {knob.why}")
    plan = _Plan(document, findings, knob, value, beside, beyond=beyond)
    if why := plan.not_taken(path, value):
        return InvalidChange(reason=f"{path} = {value}: {why}")
    for link in findings.links:
        linked = path in link.paths and link.kind in _MOVES
        refusal = _MOVES[link.kind](plan, link) if linked else None
        if refusal:
            return InvalidChange(reason=f"{path} = {value}: {refusal}")
    changes = tuple(change for change in plan.changes.values() if change.new != change.old)
    for change in changes:
        if not document.takes(change.path, change.new):
            return InvalidChange(reason=f"{change.path} cannot be set to {change.new}")
    return changes


class _Plan:
    """The changes a move needs, gathered link by link."""

    def __init__(
        self,
        document: Document,
        findings: Findings,
        knob: Knob,
        value: JsonScalar,
        beside: Mapping[str, JsonScalar],
        *,
        beyond: bool,
    ) -> None:
        self.findings = findings
        self.knob = knob
        self.value = value
        self.scalars = document.scalars
        self.absent = {each.path for each in document.absent}
        self.beside = beside
        self.beyond = beyond
        self.changes: dict[str, Change] = {}
        self._plan(knob.path, value, knob.kind)

    def old(self, path: str) -> JsonScalar:
        """The value the document has at `path`; None for a list."""
        scalar = self.scalars.get(path)
        return scalar.value if scalar else None

    def not_taken(self, path: str, value: JsonScalar) -> str | None:
        """Why the program would not take `value`, where it says which values it takes, or a
        comment does."""
        knob = self.findings.knob(path)
        if knob and (why := multiples.no_multiple(knob, value)):
            return why
        scalar = self.scalars.get(path)
        if scalar is None or not scalar.choices or value in scalar.choices:
            return None
        shown = ", ".join(map(str, scalar.choices[:MOST_SHOWN]))
        more = ", ..." if len(scalar.choices) > MOST_SHOWN else ""
        return f"the program takes only {shown}{more}"

    def set(self, path: str, value: JsonScalar, kind: str | None = None) -> str | None:
        """Plan `value` at `path`; the reason where it cannot be written."""
        scalar, knob = self.scalars.get(path), self.findings.knob(path)
        why = "it is a list" if scalar is None else None if scalar.editable else scalar.why
        why = knob.why if knob and not knob.editable else why
        why = why or self.not_taken(path, value)
        if why:
            return f"{path} would have to become {value}, but {why}"
        self._plan(path, value, kind or (knob or self.knob).kind)
        return None

    def _plan(self, path: str, value: JsonScalar, kind: str) -> None:
        like = self.findings.knob(path) or self.knob
        self.changes[path] = Change(
            document=self.findings.document,
            path=path,
            kind=kind,
            knob_class=like.knob_class,
            old=self.old(path),
            new=value,
            name=self.findings.name_of(path),
        )


def _move_product(plan: _Plan, link: KnobConstraint) -> str | None:
    """Batch x accumulation x ranks stays; another of them gives way to the one that moved.

    An accumulation of one batch has nothing to give: a larger batch is then what it would be if
    that key were not there.
    """
    new = number_of(plan.value)
    if not new or new < 1:
        return f"a {plan.knob.kind} is at least 1"
    factors, total = _factors(plan, link)
    if plan.knob.path not in factors:
        return None if _is_alone(plan, factors) else _smaller_instead(factors)
    others = [path for path in factors if path != plan.knob.path]
    if total is not None and "batch_size" not in factors.values():
        return _keep_derived(plan, total, others, new)
    yielding = next((p for kind in _YIELDS for p in others if factors[p] == kind), None)
    if yielding is None:
        return _share_total(plan, total, others, new) if total else None
    old, other = number_of(plan.old(plan.knob.path)), number_of(plan.old(yielding))
    if old is None or other is None:
        return f"{yielding} = {plan.old(yielding)} is no number to keep the product with"
    if (old * other) % new == 0:
        return plan.set(yielding, _like(old * other / new, plan.old(yielding)))
    if other == 1 and (plan.knob.kind, factors[yielding]) == ("batch_size", "grad_accum"):
        return _move_total(plan, total, new / old) if total else None
    if plan.beyond and total is None and new > old * other and factors[yielding] == "grad_accum":
        return plan.set(yielding, _like(1, plan.old(yielding)))
    return f"the product {old:g} x {other:g} of {plan.knob.path} and {yielding} cannot be kept"


def _is_alone(plan: _Plan, factors: Mapping[str, str]) -> bool:
    """Whether the global batch is the only one: nothing is accumulated, no smaller one is known."""
    counts = [number_of(plan.old(p)) for p, kind in factors.items() if kind == "grad_accum"]
    return "batch_size" not in factors.values() and all(count == 1 for count in counts)


def _smaller_instead(factors: Mapping[str, str]) -> str:
    return f"the global batch is what the optimizer sees: move {next(iter(factors), None)} instead"


def _share_total(plan: _Plan, total: str, others: list[str], new: float) -> str | None:
    """The program accumulates as often as the global batch holds the smaller one: it must hold it
    whole, and moves along where it holds it once."""
    old, whole = number_of(plan.old(plan.knob.path)), number_of(plan.old(total))
    if whole is not None and whole % new == 0:
        return None
    counts = [number_of(plan.old(path)) for path in others]
    if old and None not in counts and whole == old * math.prod(filter(None, counts)):
        return _move_total(plan, total, new / old)
    return f"{total} = {plan.old(total)} is no multiple of {plan.value}"


def _move_total(plan: _Plan, total: str, times: float) -> str | None:
    """The global batch of which nothing is accumulated: its key holds no more than the smaller."""
    whole = (number_of(plan.old(total)) or 0.0) * times
    if not whole or whole != int(whole):
        return f"{total} = {plan.old(total)} times {times:g} is no count"
    return plan.set(total, _like(whole, plan.old(total)))


_YIELDS = ("grad_accum", "batch_size")
"""Which factor gives way, the first that is there: never the ranks, which the launcher sets."""


def _factors(plan: _Plan, link: KnobConstraint) -> tuple[dict[str, str], str | None]:
    """Path to kind of what is multiplied, and the path of the product where it is written down."""
    factors, total = {}, None
    for path in link.paths:
        knob = plan.findings.knob(path)
        if knob is not None and (knob.kind != "batch_size" or knob.scope != "global"):
            factors[path] = knob.kind
        else:
            total = path
    return factors, total


def _keep_derived(plan: _Plan, total: str, others: list[str], new: float) -> str | None:
    """The program divides the total by the other factors: it must come out whole."""
    whole = number_of(plan.old(total))
    counts = [number_of(plan.old(path)) for path in others]
    if whole is None or None in counts:
        return f"{', '.join((total, *others))} are not all numbers"
    if whole % math.prod((new, *filter(None, counts))):
        return f"{total} = {whole:g} is no multiple of {plan.value} times the other factors"
    return None


def _like(number: float, old: JsonScalar) -> JsonScalar:
    return (
        number
        if isinstance(old, float)
        else str(int(number))
        if isinstance(old, str)
        else int(number)
    )


def _move_exclusive(plan: _Plan, link: KnobConstraint) -> str | None:
    other = next(path for path in link.paths if path != plan.knob.path)
    if plan.value is True and plan.old(other) is not False:
        return plan.set(other, False)
    return None


def _move_needing_workers(plan: _Plan, link: KnobConstraint) -> str | None:
    dependent, workers = link.paths
    if plan.knob.path == workers:
        unwritten = dependent in plan.absent and dependent not in plan.beside
        if plan.value != 0 or unwritten or plan.old(dependent) in (None, False):
            return None
        return plan.set(dependent, False if isinstance(plan.old(dependent), bool) else None)
    if plan.value not in (None, False) and plan.beside.get(workers, plan.old(workers)) == 0:
        return f"{link.why}, and {workers} is 0"
    return None


def _move_schedule(plan: _Plan, link: KnobConstraint) -> str | None:
    steps_path, start_path, end_path = link.paths
    if plan.knob.path != steps_path:
        return f"it belongs to {steps_path}"
    steps, new = number_of(plan.old(steps_path)), number_of(plan.value)
    start, end = number_of(plan.old(start_path)), number_of(plan.old(end_path))
    if None in (steps, new, start, end) or not new or new < 1:
        return f"{start_path}, {end_path} and {steps_path} are not all numbers"
    known = catalogue()
    word = _schedule_word(plan, steps_path)
    if word not in known.schedule_shapes:
        return f"the schedule {word!r} is none whose terminal signal can be kept"
    shape = known.schedule_shapes[word]
    if shape is None:
        return None
    assert steps
    assert start is not None
    assert end is not None
    try:
        ends = schedule.rescaled(start, end, int(steps), int(new), shape)
    except ValueError as problem:
        return str(problem)
    return plan.set(start_path, ends[0], "schedule") or plan.set(end_path, ends[1], "schedule")


def _schedule_word(plan: _Plan, steps_path: str) -> str:
    """The kind of schedule named beside the steps; a line where none is."""
    prefix = parts_of(steps_path)[:-1]
    for path, scalar in plan.scalars.items():
        parts = parts_of(path)
        if parts[:-1] == prefix and canonical(str(parts[-1])) in catalogue().schedule_names:
            return str(scalar.value).lower()
    return "linear"


def _move_fixed(plan: _Plan, link: KnobConstraint) -> str | None:
    return f"{link.why}: {plan.old(link.paths[1])}"


def _move_equal(plan: _Plan, link: KnobConstraint) -> str | None:
    other = next(path for path in link.paths if path != plan.knob.path)
    number = number_of(plan.value)
    return plan.set(other, plan.value if number is None else _like(number, plan.old(other)))


def _move_multiple(plan: _Plan, link: KnobConstraint) -> str | None:
    total, new = number_of(plan.old(link.paths[1])), number_of(plan.value)
    if total is not None and total > 0 and new and total % new:
        return f"{link.paths[1]} = {total:g} must be a multiple of it"
    return None


_MOVES: Mapping[str, Callable[[_Plan, KnobConstraint], str | None]] = {
    "product": _move_product,
    "exclusive": _move_exclusive,
    "needs-workers": _move_needing_workers,
    "schedule": _move_schedule,
    "fixed": _move_fixed,
    "equal": _move_equal,
    "multiple": _move_multiple,
}
