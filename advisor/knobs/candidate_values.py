"""Values of a knob, with their linked changes."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from advisor.config import Document
from advisor.knobs.catalogue import catalogue, pattern_of, rescaled_schedule
from advisor.knobs.registry import REGISTRY
from advisor.knobs.tree import Findings, canonical, number_of, parts_of
from advisor.model import Change, JsonScalar, Knob, KnobConstraint


def is_ban(comment: str | None) -> bool:
    """True if `comment` forbids a change, not just asks for multiples."""
    left = pattern_of("comments", "multiple").sub(" ", comment or "")
    return bool(pattern_of("comments", "constraint").search(left))


NARROW = ("bfloat16", "float16")
"""In order of trial: bfloat16 needs no loss scaling."""


def precision_choices(knob: Knob) -> dict[str, JsonScalar]:
    """Precisions to try, bfloat16 first; empty for an unknown spelling.

    Spelled alike: `16-mixed` to `bf16-mixed`, `fp32` to `bf16` and `fp16`, off to on.
    """
    if isinstance(knob.value, bool):
        return {} if knob.value else dict.fromkeys(dtypes_of_flag(knob), True)
    row, current = row_of(knob.value)
    upper = isinstance(knob.value, str) and knob.value.isupper()
    return {
        dtype: word.upper() if upper and isinstance(word, str) else word
        for dtype in NARROW
        if (word := row.get(dtype)) is not None and dtype != current
    }


def dtypes_of_flag(knob: Knob) -> tuple[str, ...]:
    """Dtypes of a flag; `amp` leaves the choice open."""
    name = "_".join(str(part) for part in parts_of(knob.path)[-2:]).lower()
    if re.search(r"(?:fp|float|int)_?8(?!\d)", name):
        return ()
    if "bf16" in name or "bfloat16" in name:
        return ("bfloat16",)
    return ("float16",) if re.search(r"16|half", name) else NARROW


def row_of(value: object) -> tuple[dict[str, JsonScalar], str]:
    for row in catalogue()["precision-row"]:
        for dtype, word in row.items():
            if type(word) is type(value) and str(word).lower() == str(value).lower():
                return dict(row), dtype
    return {}, "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidChange:
    reason: str


def move(
    document: Document,
    findings: Findings,
    path: str,
    value: JsonScalar,
    beside: Mapping[str, JsonScalar] | None = None,
    *,
    beyond: bool = False,
) -> tuple[Change, ...] | InvalidChange:
    """Move a knob with its links, or say why not.

    An accumulation keeps the effective batch: the learning rate stays right. `beyond`:
    a batch may exceed one update.
    """
    knob = findings.knob(path)
    if knob is None:
        return InvalidChange(reason=f"`{path}` is no knob of {findings.document}")
    plan = _Plan(document, findings, knob, value, beside or {}, beyond)
    refusal = plan.set(path, value)
    for link in findings.links:
        if path in link.paths:
            refusal = refusal or _MOVES[link.kind](plan, link)
    if refusal:
        return InvalidChange(reason=f"`{path} = {value}`: {refusal}")
    changes = tuple(change for change in plan.changes.values() if change.new != change.old)
    for change in changes:
        if not document.takes(change.path, change.new):
            return InvalidChange(reason=f"`{change.path}` cannot be set to {change.new}")
    return changes


@dataclass(slots=True)
class _Plan:
    """Changes of a move, gathered link by link."""

    document: Document
    findings: Findings
    knob: Knob
    value: JsonScalar
    beside: Mapping[str, JsonScalar]
    beyond: bool
    changes: dict[str, Change] = field(default_factory=dict)

    def old(self, path: str) -> JsonScalar:
        """Present value at `path`; None for a list."""
        scalar = self.document.scalars.get(path)
        return scalar.value if scalar else None

    def count(self, path: str) -> float | None:
        return number_of(self.old(path))

    def set(self, path: str, value: JsonScalar, kind: str | None = None) -> str | None:
        """Plan `value` at `path`, or return the refusal."""
        scalar, knob = self.document.scalars.get(path), self.findings.knob(path)
        why = scalar.why if scalar else "it is a list"
        why = (knob and knob.frozen) or why
        if why:
            return (
                why
                if path == self.knob.path
                else f"{path} would have to be {value}, but {why}"
            )
        self.changes[path] = Change(
            document=self.findings.document,
            path=path,
            kind=kind or (knob or self.knob).kind,
            knob_class=(knob or self.knob).knob_class,
            old=self.old(path),
            new=value,
            name=self.findings.name_of(path),
            in_code=self.document.format == "process",
        )
        return None

    def set_count(self, path: str, number: float) -> str | None:
        """Plan a whole number at `path`, as text where text stands there."""
        count = int(number)
        return self.set(path, str(count) if isinstance(self.old(path), str) else count)


def _move_product(plan: _Plan, link: KnobConstraint) -> str | None:
    """Keep batch x accumulation by the other; a written product must divide."""
    new = number_of(plan.value)
    if not new or new < 1:
        return f"a {plan.knob.kind} is at least 1"
    knobs = [knob for path in link.paths if (knob := plan.findings.knob(path))]
    total = next(
        (k.path for k in knobs if k.kind == "batch_size" and k.scope == "global"), ""
    )
    others = [knob.path for knob in knobs if knob.path not in (plan.knob.path, total)]
    if plan.knob.path == total:
        alone = knobs[0].kind == "grad_accum" and plan.count(others[0]) == 1
        instead = f"the global batch is what the optimizer sees: move {others[0]} instead"
        return None if alone else instead
    if not others:
        return _divides(plan, total, new)
    old, count = plan.count(plan.knob.path), plan.count(others[0])
    if old is None or count is None:
        return f"{plan.knob.path} and {others[0]} are not all numbers"
    if (old * count) % new == 0:
        return plan.set_count(others[0], old * count / new)
    beyond = plan.beyond and not total and new > old * count
    if plan.knob.kind == "batch_size" and (count == 1 or beyond):
        return _divides(plan, total, new) if total else plan.set_count(others[0], 1)
    return f"the product {old:g} x {count:g} of {plan.knob.path} and {others[0]} cannot be kept"


def _divides(plan: _Plan, total: str, new: float) -> str | None:
    """Require that the written product divides; that of one batch moves along."""
    whole, old = plan.count(total), plan.count(plan.knob.path)
    if whole is None or old is None:
        return f"{total} and {plan.knob.path} are not all numbers"
    if whole == old and plan.knob.kind == "batch_size":
        return plan.set_count(total, new)
    return f"{total} = {whole:g} is no multiple of {new:g}" if whole % new else None


def _move_exclusive(plan: _Plan, link: KnobConstraint) -> str | None:
    other = next(path for path in link.paths if path != plan.knob.path)
    return (
        plan.set(other, False)
        if plan.value is True and plan.old(other) is not False
        else None
    )


def _move_needing_workers(plan: _Plan, link: KnobConstraint) -> str | None:
    dependent, workers = link.paths
    spec = next(REGISTRY[k.kind] for k in plan.findings.knobs if k.path == dependent)
    without = None if spec.none_is_a_value else spec.default
    if plan.knob.path == workers:
        if plan.value != 0 or plan.old(dependent) in (None, without):
            return None
        return plan.set(dependent, without)
    if (
        plan.value not in (None, without)
        and plan.beside.get(workers, plan.old(workers)) == 0
    ):
        return f"{link.why}, and {workers} is 0"
    return None


def _move_schedule(plan: _Plan, link: KnobConstraint) -> str | None:
    steps_path, start_path, end_path = link.paths
    steps, start, end = (plan.count(path) for path in link.paths)
    new = number_of(plan.value)
    if steps is None or start is None or end is None or not new or new < 1:
        return f"{start_path}, {end_path} and {steps_path} are not all numbers"
    word, powers = _schedule_word(plan, steps_path), catalogue()["schedule"]["powers"]
    if word not in powers:
        return f"the schedule {word!r} is none whose terminal signal can be kept"
    if not powers[word]:
        return None
    try:
        ends = rescaled_schedule(start, end, int(steps), int(new), powers[word])
    except ValueError as problem:
        return str(problem)
    return plan.set(start_path, ends[0], "schedule") or plan.set(
        end_path, ends[1], "schedule"
    )


def _schedule_word(plan: _Plan, steps_path: str) -> str:
    prefix, names = parts_of(steps_path)[:-1], catalogue()["schedule"]["names"]
    for path, scalar in plan.document.scalars.items():
        parts = parts_of(path)
        if parts[:-1] == prefix and canonical(str(parts[-1])) in names:
            return str(scalar.value).lower()
    return "linear"


_MOVES: Mapping[str, Callable[[_Plan, KnobConstraint], str | None]] = {
    "product": _move_product,
    "exclusive": _move_exclusive,
    "needs-workers": _move_needing_workers,
    "schedule": _move_schedule,
}
