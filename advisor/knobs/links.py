"""Knobs that move together: which ones, and how to move them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.knobs import schedule
from advisor.knobs.catalogue import Catalogue, catalogue
from advisor.knobs.tree import Leaf, Part, canonical, parts_of
from advisor.model import Change, JsonScalar, Knob, Link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from advisor.documents import Document
    from advisor.knobs.findings import Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A knob that cannot be moved so, and why."""

    reason: str


# --- finding ------------------------------------------------------------------------------------


def find_links(leaves: Iterable[Leaf], knobs: Iterable[Knob]) -> tuple[Link, ...]:
    """Every link between `knobs`, and between them and other leaves of the same document."""
    around = _Around(tuple(leaves), tuple(knobs))
    makers = (_products, _exclusives, _needing_workers, _schedules, _fixed_steps,
              _learning_rates, _agreeing_sizes, _multiples)  # fmt: skip
    return tuple(link for maker in makers for link in maker(around))


class _Around:
    """The leaves and knobs of one document, ready to be looked up."""

    def __init__(self, leaves: tuple[Leaf, ...], knobs: tuple[Knob, ...]) -> None:
        self.catalogue: Catalogue = catalogue()
        self.leaves = leaves
        self.knobs = knobs
        self.by_path: Mapping[str, Leaf] = {leaf.path: leaf for leaf in leaves}
        self.parts: Mapping[str, tuple[Part, ...]] = {k.path: parts_of(k.path) for k in knobs}

    def of_kind(self, kind: str, *phases: str) -> list[Knob]:
        return [k for k in self.knobs if k.kind == kind and (not phases or k.phase in phases)]

    def nearest(self, knob: Knob, others: Iterable[Knob]) -> list[Knob]:
        """Those of `others` that share the longest part of their path with `knob`."""
        shared = {o.path: _shared(self.parts[knob.path], self.parts[o.path]) for o in others}
        best = max(shared.values(), default=-1)
        return [o for o in others if shared[o.path] == best]

    def siblings(self, knob: Knob) -> dict[str, Leaf]:
        mapping = self.by_path[knob.path].mapping
        return {leaf.name: leaf for leaf in self.leaves if leaf.mapping == mapping}


def _shared(one: tuple[Part, ...], other: tuple[Part, ...]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _products(around: _Around) -> Iterable[Link]:
    batches = [b for b in around.of_kind("batch_size", "train", "any") if b.scope != "global"]
    totals = [b for b in around.of_kind("batch_size", "train", "any") if b.scope == "global"]
    for accumulation in around.of_kind("grad_accum"):
        near = around.nearest(accumulation, batches)[:1]
        total = _total_of(around, accumulation, totals)
        if near:
            why = "samples of one optimizer step = batch x accumulation x devices: kept"
            paths = (near[0].path, accumulation.path, *total)
            yield Link(kind="product", paths=paths, why=why)
    if not around.of_kind("grad_accum"):
        for batch in batches:
            total = _total_of(around, batch, totals) if batch.scope == "micro" else ()
            if total:
                why = "the program accumulates global / (micro x devices) batches: the micro batch must divide the global one"
                yield Link(kind="product", paths=(batch.path, *total), why=why)


def _total_of(around: _Around, knob: Knob, totals: list[Knob]) -> tuple[str, ...]:
    train_key = around.siblings(knob).get("train_batch_size")
    if train_key and train_key.path != knob.path:
        return (train_key.path,)
    return tuple(t.path for t in around.nearest(knob, totals)[:1])


def _exclusives(around: _Around) -> Iterable[Link]:
    flags = [k for k in around.of_kind("precision") if isinstance(k.value, bool | str)]
    halves = [k for k in flags if _half(k) == "fp16"]
    for half in halves:
        others = [k for k in flags if _half(k) == "bf16" and k.phase == half.phase]
        for other in around.nearest(half, others)[:1]:
            why = "fp16 and bf16 exclude each other"
            yield Link(kind="exclusive", paths=(half.path, other.path), why=why)


def _half(knob: Knob) -> str | None:
    path = "_".join(str(part) for part in parts_of(knob.path)[-2:]).lower()
    if not (isinstance(knob.value, bool) or knob.value == "auto"):
        return None
    return "bf16" if "bf16" in path or "bfloat16" in path else "fp16" if "fp16" in path else None


def _needing_workers(around: _Around) -> Iterable[Link]:
    workers = around.of_kind("num_workers")
    for kind in ("prefetch_factor", "persistent_workers"):
        for knob in around.of_kind(kind):
            if kind == "prefetch_factor" and not _is_count(knob.value):
                continue
            same = [w for w in workers if w.phase == knob.phase] or workers
            for near in around.nearest(knob, same)[:1]:
                why = f"{kind} needs worker processes: PyTorch refuses it with none"
                yield Link(kind="needs-workers", paths=(knob.path, near.path), why=why)


def _is_count(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _schedules(around: _Around) -> Iterable[Link]:
    for knob in around.of_kind("timesteps"):
        siblings = around.siblings(knob)
        for start, end in around.catalogue.schedule_ends:
            if start in siblings and end in siblings:
                why = "the terminal signal prod(1 - beta) stays as it is: the ends move with the steps"
                paths = (knob.path, siblings[start].path, siblings[end].path)
                yield Link(kind="schedule", paths=paths, why=why)
        for leaf in around.leaves:
            if (
                leaf.name in around.catalogue.respacing_copies
                and leaf.path > knob.path
                and leaf.name != around.by_path[knob.path].name
                and _number(leaf.value) == _number(knob.value) is not None
            ):
                why = "the same number of steps, written twice"
                yield Link(kind="equal", paths=(knob.path, leaf.path), why=why)


def _fixed_steps(around: _Around) -> Iterable[Link]:
    known = around.catalogue
    for target in around.leaves:
        if not (isinstance(target.value, str) and target.value.endswith(known.fixed_targets)):
            continue
        for trained in around.leaves:
            if trained.mapping != target.mapping or trained.name not in known.fixed_trained:
                continue
            for knob in around.of_kind("timesteps"):
                why = f"{target.value.rsplit('.', 1)[-1]} runs the steps it was trained with"
                yield Link(kind="fixed", paths=(knob.path, trained.path), why=why)


def _learning_rates(around: _Around) -> Iterable[Link]:
    rates = around.of_kind("learning_rate")
    batches = around.of_kind("batch_size", "train", "any")
    totals = [b for b in batches if b.scope == "global"] or batches
    if not rates or not totals:
        return
    scaling = around.catalogue.self_scaling
    own = next((leaf for leaf in around.leaves if scaling.fullmatch(leaf.name)), None)
    why = (
        f"the program derives the rate from the batch ({own.path}): never scale it twice"
        if own
        else "a learning rate is chosen for one effective batch"
    )
    paths = (*(b.path for b in totals), *(r.path for r in rates))
    yield Link(kind="lr-batch", paths=paths, why=why)


def _agreeing_sizes(around: _Around) -> Iterable[Link]:
    for knob in around.of_kind("image_size"):
        name = around.by_path[knob.path].name
        for leaf in around.leaves:
            if leaf.name == name and not leaf.ancestors and leaf.path != knob.path:
                if leaf.value == knob.value:
                    why = "one size written twice: the program expects them equal"
                    yield Link(kind="equal", paths=(knob.path, leaf.path), why=why)


def _multiples(around: _Around) -> Iterable[Link]:
    batches = around.of_kind("batch_size", "train")
    for leaf in around.leaves:
        if leaf.name in around.catalogue.multiples and batches:
            why = f"{leaf.key} must be a multiple of the batch"
            yield Link(kind="multiple", paths=(batches[0].path, leaf.path), why=why)


# --- moving ----------------------------------------------------------------------------------------


def move(
    document: Document, findings: Findings, path: str, value: JsonScalar
) -> tuple[Change, ...] | Refusal:
    """The knob at `path` set to `value`, with everything linked to it; or why that cannot be.

    Links that say nothing against a move alone (`lr-batch`, `reference`) change nothing: the
    product link keeps the effective batch, so the learning rate stays right.
    """
    knob = findings.knob(path)
    if knob is None:
        return Refusal(reason=f"{path} is no knob of {findings.document}")
    if not knob.editable:
        return Refusal(reason=f"{path}: {knob.why}")
    plan = _Plan(document, findings, knob, value)
    for link in findings.links:
        if path in link.paths and link.kind in _MOVES:
            refusal = _MOVES[link.kind](plan, link)
            if refusal:
                return Refusal(reason=f"{path} = {value}: {refusal}")
    return plan.changes()


class _Plan:
    """The changes a move needs, gathered link by link."""

    def __init__(
        self, document: Document, findings: Findings, knob: Knob, value: JsonScalar
    ) -> None:
        self.document = document
        self.findings = findings
        self.knob = knob
        self.value = value
        self._new: dict[str, JsonScalar] = {knob.path: value}

    def old(self, path: str) -> JsonScalar:
        scalar = self.document.scalars.get(path)
        return scalar.value if scalar else None

    def set(self, path: str, value: JsonScalar) -> str | None:
        """Plan `value` at `path`; the reason where it cannot be written."""
        scalar = self.document.scalars.get(path)
        if scalar is None or not scalar.editable:
            return f"{path} would have to become {value}, but {scalar.why if scalar else 'it is a list'}"
        knob = self.findings.knob(path)
        if knob and not knob.editable:
            return f"{path} would have to become {value}, but {knob.why}"
        self._new[path] = value
        return None

    def changes(self) -> tuple[Change, ...]:
        return tuple(
            Change(
                document=self.findings.document,
                path=path,
                kind=knob.kind if (knob := self.findings.knob(path)) else self.knob.kind,
                knob_class=knob.knob_class if knob else self.knob.knob_class,
                old=self.old(path),
                new=value,
            )
            for path, value in self._new.items()
            if value != self.old(path)
        )


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _move_product(plan: _Plan, link: Link) -> str | None:
    """Batch x accumulation stays; the partner of the one that moved gives way."""
    new = _number(plan.value)
    if not new or new < 1:
        return "a batch and an accumulation are at least 1"
    kinds = {path: knob.kind for path in link.paths if (knob := plan.findings.knob(path))}
    accumulation = next((p for p in link.paths if kinds.get(p) == "grad_accum"), None)
    batch, totals = link.paths[0], link.paths[2 if accumulation else 1 :]
    if plan.knob.path in totals:
        return f"the global batch is what the optimizer sees: move {batch} instead"
    if accumulation is None:
        total = _number(plan.old(totals[0]))
        if total is None or total % new:
            return f"{totals[0]} = {plan.old(totals[0])} is no multiple of {plan.value}"
        return None
    partner = accumulation if plan.knob.path == batch else batch
    old, other = _number(plan.old(plan.knob.path)), _number(plan.old(partner))
    if old is None or other is None:
        return f"{partner} = {plan.old(partner)} is no number to keep the product with"
    if (old * other) % new:
        return (
            f"the product {old:g} x {other:g} of {link.paths[0]} and {accumulation} cannot be kept"
        )
    return plan.set(partner, _like(old * other / new, plan.old(partner)))


def _like(number: float, old: JsonScalar) -> JsonScalar:
    return (
        number
        if isinstance(old, float)
        else str(int(number))
        if isinstance(old, str)
        else int(number)
    )


def _move_exclusive(plan: _Plan, link: Link) -> str | None:
    other = next(path for path in link.paths if path != plan.knob.path)
    if plan.value is True and plan.old(other) is not False:
        return plan.set(other, False)
    return None


def _move_needing_workers(plan: _Plan, link: Link) -> str | None:
    dependent, workers = link.paths
    if plan.knob.path == workers:
        if plan.value != 0 or plan.old(dependent) in (None, False):
            return None
        return plan.set(dependent, False if isinstance(plan.old(dependent), bool) else None)
    if plan.value not in (None, False) and plan.old(workers) == 0:
        return f"{link.why}, and {workers} is 0"
    return None


def _move_schedule(plan: _Plan, link: Link) -> str | None:
    steps_path, start_path, end_path = link.paths
    if plan.knob.path != steps_path:
        return f"it belongs to {steps_path}"
    steps, new = _number(plan.old(steps_path)), _number(plan.value)
    start, end = _number(plan.old(start_path)), _number(plan.old(end_path))
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
    return plan.set(start_path, ends[0]) or plan.set(end_path, ends[1])


def _schedule_word(plan: _Plan, steps_path: str) -> str:
    """The kind of schedule named beside the steps; a line where none is."""
    prefix = parts_of(steps_path)[:-1]
    for path, scalar in plan.document.scalars.items():
        parts = parts_of(path)
        if parts[:-1] == prefix and canonical(str(parts[-1])) in catalogue().schedule_names:
            return str(scalar.value).lower()
    return "linear"


def _move_fixed(plan: _Plan, link: Link) -> str | None:
    return f"{link.why}: {plan.old(link.paths[1])}"


def _move_equal(plan: _Plan, link: Link) -> str | None:
    other = next(path for path in link.paths if path != plan.knob.path)
    number = _number(plan.value)
    return plan.set(other, plan.value if number is None else _like(number, plan.old(other)))


def _move_multiple(plan: _Plan, link: Link) -> str | None:
    total, new = _number(plan.old(link.paths[1])), _number(plan.value)
    if total is not None and new and total % new:
        return f"{link.paths[1]} = {total:g} must be a multiple of it"
    return None


_MOVES: Mapping[str, Callable[[_Plan, Link], str | None]] = {
    "product": _move_product,
    "exclusive": _move_exclusive,
    "needs-workers": _move_needing_workers,
    "schedule": _move_schedule,
    "fixed": _move_fixed,
    "equal": _move_equal,
    "multiple": _move_multiple,
}
