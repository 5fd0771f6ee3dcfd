"""Trace of one step, read from the recorder, and scaled to other batches."""

import itertools
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple, Self

from pydantic import BaseModel, Field, NonNegativeFloat, NonNegativeInt

from advisor.errors import PredictionError
from advisor.probe.op_trace import MATRIX, OTHER

Kind = Annotated[int, Field(ge=MATRIX, le=OTHER)]


class Operation(NamedTuple):
    """One operation of the step."""

    kind: int
    dtype: str
    flops: float
    bytes: float
    """Of its inputs and outputs."""


class _Raw(BaseModel):
    """Trace as the recorder wrote it; untrusted."""

    dtypes: list[str]
    names: list[str]
    ops: list[tuple[Kind, NonNegativeInt, NonNegativeFloat, NonNegativeInt]]
    held: list[NonNegativeInt]
    events: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Operations of one step, and the storages that it makes and frees."""

    batch: float
    names: tuple[str, ...]
    ops: tuple[Operation, ...]
    held: tuple[float, ...]
    """Bytes of storages that were there before: parameters, optimizer state, inputs."""
    events: tuple[float, ...]
    """Bytes of a storage that is made, or -1 - n where the nth is freed."""

    def computed_in(self, dtype: str) -> Self:
        """Step whose products of 32 bits are computed in `dtype`."""
        wide = {"float32", "tf32"}
        ops = (op._replace(dtype=dtype) if op.flops and op.dtype in wide else op for op in self.ops)
        return replace(self, ops=tuple(ops))


def parse(content: object, batch: float) -> Trace:
    """Trace from the recorder's entry. Raises pydantic.ValidationError."""
    raw = _Raw.model_validate(content)
    runs = itertools.groupby(raw.events, lambda event: event < 0)
    events = (event for frees, run in runs for event in (sorted(run) if frees else run))
    return Trace(
        batch=batch,
        names=tuple(raw.names),
        ops=tuple(Operation(k, raw.dtypes[d], f, float(b)) for k, d, f, b in raw.ops),
        held=tuple(map(float, raw.held)),
        events=tuple(map(float, events)),  # freed together, in an order that says nothing
    )


def at_batch(small: Trace, large: Trace, batch: float) -> Trace:
    """Trace of another batch, linear in it. Raises PredictionError for different steps."""
    same = small.names == large.names and len(small.held) == len(large.held)
    freed = [[min(event, 0.0) for event in each.events] for each in (small, large)]
    if not same or freed[0] != freed[1] or small.batch == large.batch:
        msg = (
            f"The steps at batch {small.batch:g} and {large.batch:g} did different operations, so "
            "no other batch can be predicted from them."
        )
        raise PredictionError(msg)
    share = (batch - small.batch) / (large.batch - small.batch)

    def line(one: float, other: float) -> float:
        return max(0.0, one + share * (other - one))

    return replace(
        small,
        batch=batch,
        ops=tuple(
            one._replace(flops=line(one.flops, two.flops), bytes=line(one.bytes, two.bytes))
            for one, two in zip(small.ops, large.ops, strict=True)
        ),
        held=tuple(map(line, small.held, large.held)),
        events=tuple(
            one if one < 0 else line(one, two)
            for one, two in zip(small.events, large.events, strict=True)
        ),
    )
