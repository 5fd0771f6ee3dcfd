"""Constraints between knobs that move together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.knobs.catalogue import catalogue
from advisor.knobs.registry import REGISTRY, loader_arguments
from advisor.knobs.tree import Leaf, Part, number_of, parts_of
from advisor.model import Knob, KnobConstraint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from advisor.knobs.finder import Classified


Found = tuple[str, tuple[str, ...], str]
"""Kind, paths and why of a link."""


def find_links(found: Classified) -> tuple[KnobConstraint, ...]:
    """Find all links between knobs and other leaves."""
    around = _Around(found)
    makers = (_products, _exclusives, _needing_workers, _schedules, _fixed_steps,
              _learning_rates, _agreeing_sizes, _multiples)  # fmt: skip
    return tuple(
        KnobConstraint(kind=kind, document=found.document.name, paths=paths, why=why)
        for maker in makers
        for kind, paths, why in maker(around)
    )


class _Around:
    """Leaves and knobs of one document."""

    def __init__(self, found: Classified) -> None:
        self.catalogue = catalogue()
        self.leaves = found.leaves
        self.knobs = found.knobs
        self.by_path: Mapping[str, Leaf] = {leaf.path: leaf for leaf in found.leaves}
        self.parts: Mapping[str, tuple[Part, ...]] = {k.path: parts_of(k.path) for k in self.knobs}

    def of_kind(self, kind: str, *phases: str) -> list[Knob]:
        return [k for k in self.knobs if k.kind == kind and (not phases or k.phase in phases)]

    def nearest(self, knob: Knob, others: Iterable[Knob]) -> list[Knob]:
        """Nearest of `others` to `knob` by their paths."""
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


def _products(around: _Around) -> Iterable[Found]:
    batches = [b for b in around.of_kind("batch_size", "train", "any") if b.scope != "global"]
    totals = [b for b in around.of_kind("batch_size", "train", "any") if b.scope == "global"]
    for accumulation in around.of_kind("grad_accum"):
        near = [b.path for b in around.nearest(accumulation, batches)[:1]]
        total = _total_of(around, accumulation, totals)
        ranks = _ranks_of(around, accumulation, near)
        if near:
            why = "samples of one optimizer step = batch x accumulation x devices: kept"
            yield "product", (near[0], accumulation.path, *ranks, *total), why
        elif total:
            why = "the program divides the global batch by accumulation x devices: it must divide"
            yield "product", (accumulation.path, *ranks, *total), why
    if not around.of_kind("grad_accum"):
        for batch in batches:
            total = _total_of(around, batch, totals) if batch.scope == "micro" else ()
            if total:
                why = "the program accumulates global / (micro x devices) times: it must divide"
                yield "product", (batch.path, *total), why


def _ranks_of(around: _Around, accumulation: Knob, batches: list[str]) -> tuple[str, ...]:
    """Number of devices, for batches of one device.

    Empty unless it stands once, as a count.
    """
    scopes = {knob.scope for knob in around.knobs if knob.path in batches}
    counts = [k for k in around.of_kind("num_devices") if (number_of(k.value) or 0) >= 1]
    near = around.nearest(accumulation, counts)
    return (near[0].path,) if len(near) == 1 and scopes <= {"device", "micro"} else ()


def _total_of(around: _Around, knob: Knob, totals: list[Knob]) -> tuple[str, ...]:
    """Global batch nearest to `knob`."""
    return tuple(t.path for t in around.nearest(knob, totals)[:1] if t.path != knob.path)


def _exclusives(around: _Around) -> Iterable[Found]:
    flags = [k for k in around.of_kind("precision") if isinstance(k.value, bool | str)]
    halves = [k for k in flags if _half(k) == "fp16"]
    for half in halves:
        others = [k for k in flags if _half(k) == "bf16" and k.phase == half.phase]
        for other in around.nearest(half, others)[:1]:
            why = "fp16 and bf16 exclude each other"
            yield "exclusive", (half.path, other.path), why


def _half(knob: Knob) -> str | None:
    path = "_".join(str(part) for part in parts_of(knob.path)[-2:]).lower()
    if not (isinstance(knob.value, bool) or knob.value == "auto"):
        return None
    return "bf16" if "bf16" in path or "bfloat16" in path else "fp16" if "fp16" in path else None


def _needing_workers(around: _Around) -> Iterable[Found]:
    workers = around.of_kind("num_workers")
    for kind in loader_arguments("workers"):
        for knob in around.of_kind(kind):
            if REGISTRY[kind].none_is_a_value and not _is_count(knob.value):
                continue
            same = [w for w in workers if w.phase == knob.phase] or workers
            for near in around.nearest(knob, same)[:1]:
                why = f"{kind} needs worker processes: PyTorch refuses it with none"
                yield "needs-workers", (knob.path, near.path), why


def _is_count(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _schedules(around: _Around) -> Iterable[Found]:
    for knob in around.of_kind("timesteps"):
        siblings = around.siblings(knob)
        for start, end in around.catalogue.schedule_ends:
            if start in siblings and end in siblings:
                why = "the terminal signal prod(1 - beta) is kept: the ends move with the steps"
                paths = (knob.path, siblings[start].path, siblings[end].path)
                yield "schedule", paths, why
        for leaf in around.leaves:
            if (
                leaf.name in around.catalogue.respacing_copies
                and (leaf.path not in around.parts or leaf.path > knob.path)
                and leaf.name != around.by_path[knob.path].name
                and number_of(leaf.value) == number_of(knob.value) is not None
            ):
                why = "the same number of steps, written twice"
                yield "equal", (knob.path, leaf.path), why


def _fixed_steps(around: _Around) -> Iterable[Found]:
    known = around.catalogue
    for target in around.leaves:
        if not (isinstance(target.value, str) and target.value.endswith(known.fixed_targets)):
            continue
        for trained in around.leaves:
            if trained.mapping != target.mapping or trained.name not in known.fixed_trained:
                continue
            for knob in around.of_kind("timesteps"):
                why = f"{target.value.rsplit('.', 1)[-1]} runs the steps it was trained with"
                yield "fixed", (knob.path, trained.path), why


def _learning_rates(around: _Around) -> Iterable[Found]:
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
    yield "lr-batch", paths, why


def _agreeing_sizes(around: _Around) -> Iterable[Found]:
    for knob in around.of_kind("image_size"):
        name = around.by_path[knob.path].name
        for leaf in around.leaves:
            copy = leaf.name == name and not leaf.ancestors and leaf.path != knob.path
            if copy and leaf.value == knob.value:
                why = "one size written twice: the program expects them equal"
                yield "equal", (knob.path, leaf.path), why


def _multiples(around: _Around) -> Iterable[Found]:
    batches = around.of_kind("batch_size", "train")
    for leaf in around.leaves:
        if leaf.name in around.catalogue.multiples and batches:
            why = f"{leaf.key} must be a multiple of the batch"
            yield "multiple", (batches[0].path, leaf.path), why
