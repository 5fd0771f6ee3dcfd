"""Constraints between knobs that move together."""

import itertools
from collections.abc import Iterable, Sequence

from advisor.knobs.candidate_values import dtypes_of_flag
from advisor.knobs.catalogue import catalogue
from advisor.knobs.registry import REGISTRY, loader_arguments
from advisor.knobs.tree import Leaf, parts_of
from advisor.model import Knob, KnobConstraint

FoundConstraint = tuple[str, tuple[str, ...], str]
"""Kind, paths and reason of a link."""


def find_links(
    document: str, leaves: Sequence[Leaf], knobs: Sequence[Knob]
) -> tuple[KnobConstraint, ...]:
    links = itertools.chain(
        _products(knobs), _exclusives(knobs), _of_workers(knobs), _schedules(knobs, leaves)
    )
    return tuple(
        KnobConstraint(kind=kind, document=document, paths=paths, why=reason)
        for kind, paths, reason in links
    )


def _of_kind(kind: str, knobs: Sequence[Knob]) -> list[Knob]:
    return [knob for knob in knobs if knob.kind == kind]


def _nearest(knob: Knob, others: Sequence[Knob]) -> list[Knob]:
    """The one of `others` whose path begins most like `knob`'s."""

    def shared(other: Knob) -> int:
        pairs = zip(parts_of(knob.path), parts_of(other.path), strict=False)
        return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))

    return [max(others, key=shared)] if others else []


def _products(knobs: Sequence[Knob]) -> Iterable[FoundConstraint]:
    every = [
        knob for knob in _of_kind("batch_size", knobs) if knob.phase in {"train", "any"}
    ]
    batches = [batch for batch in every if batch.scope != "global"]
    totals = [batch for batch in every if batch.scope == "global"]
    accumulations = _of_kind("grad_accum", knobs)
    for accumulation in accumulations:
        near, total = _nearest(accumulation, batches), _nearest(accumulation, totals)
        reason = (
            "the program divides the global batch by accumulation x devices: it must divide"
        )
        if near:
            reason = "samples of one optimizer step = batch x accumulation x devices: kept"
        if near or total:
            yield (
                "product",
                tuple(knob.path for knob in (*near, accumulation, *total)),
                reason,
            )
    for batch in batches if not accumulations else ():
        for whole in _nearest(batch, totals) if batch.scope == "micro" else ():
            reason = (
                "the program accumulates global / (micro x devices) times: it must divide"
            )
            yield "product", (batch.path, whole.path), reason


def _exclusives(knobs: Sequence[Knob]) -> Iterable[FoundConstraint]:
    every = _of_kind("precision", knobs)
    flags = [knob for knob in every if isinstance(knob.value, bool) or knob.value == "auto"]
    for half in flags:
        others = [
            k for k in flags if dtypes_of_flag(k) == ("bfloat16",) and k.phase == half.phase
        ]
        for other in _nearest(half, others) if dtypes_of_flag(half) == ("float16",) else ():
            yield "exclusive", (half.path, other.path), "fp16 and bf16 exclude each other"


def _of_workers(knobs: Sequence[Knob]) -> Iterable[FoundConstraint]:
    workers = _of_kind("num_workers", knobs)
    for kind in loader_arguments("workers"):
        for knob in _of_kind(kind, knobs):
            if REGISTRY[kind].none_is_a_value and type(knob.value) not in {int, type(None)}:
                continue
            same = [w for w in workers if w.phase == knob.phase] or workers
            for near in _nearest(knob, same):
                reason = f"{kind} needs worker processes: PyTorch refuses it with none"
                yield "needs-workers", (knob.path, near.path), reason


def _schedules(knobs: Sequence[Knob], leaves: Sequence[Leaf]) -> Iterable[FoundConstraint]:
    mappings = {leaf.path: leaf.mapping for leaf in leaves}
    for knob in _of_kind("timesteps", knobs):
        mapping = mappings[knob.path]
        siblings = {leaf.name: leaf for leaf in leaves if leaf.mapping == mapping}
        for start, end in catalogue()["schedule"]["ends"]:
            if start in siblings and end in siblings:
                reason = "the terminal signal prod(1 - beta) is kept: the ends move with the steps"
                yield (
                    "schedule",
                    (knob.path, siblings[start].path, siblings[end].path),
                    reason,
                )
