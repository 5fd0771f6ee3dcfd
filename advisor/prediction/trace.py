"""Trace of one step, read from the recorder, and scaled to other batches."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple, Self

from pydantic import Field, FiniteFloat, TypeAdapter

from advisor.errors import PredictionError
from advisor.probe.op_trace import MATRIX, OTHER

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Operation(NamedTuple):
    kind: Annotated[int, Field(ge=MATRIX, le=OTHER)]
    dtype: str
    flops: Amount
    bytes: Amount
    """Bytes of its inputs and outputs."""
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Operations of one step, and the storages it makes and frees."""

    batch: float
    ops: tuple[Operation, ...]
    held: tuple[Amount, ...]
    """Bytes of earlier storages: parameters, optimizer state, inputs."""
    events: tuple[FiniteFloat, ...]
    """Bytes of a storage made, or -1 - n where the nth is freed."""

    def computed_in(self, dtype: str) -> Self:
        """Step with products of 32 bits computed in `dtype`."""
        wide = {"float32", "tf32"}
        ops = (
            op._replace(dtype=dtype) if op.flops and op.dtype in wide else op
            for op in self.ops
        )
        return replace(self, ops=tuple(ops))


_TRACE = TypeAdapter(Trace)


def parse(content: Mapping[str, object], batch: float) -> Trace:
    """Trace from the recorder's entry, untrusted. Raises pydantic.ValidationError.

    Storages that are freed together are put in order: theirs is one of Python's reference counts
    and may differ between two runs, which must match event by event to give a line.
    """
    trace = _TRACE.validate_python({**content, "batch": batch})
    runs = itertools.groupby(trace.events, lambda event: event < 0)
    events = (event for frees, run in runs for event in (sorted(run) if frees else run))
    return replace(trace, events=tuple(events))


def at_batch(small: Trace, large: Trace, batch: float) -> Trace:
    """Trace of another batch, linear in it. Raises PredictionError.

    By a line through two traced batches, as weights and optimizer state do not grow with the batch.
    Both must have done the same operations in the same order: a program that branches on its
    batch has no line.
    """
    names = [[op.name for op in trace.ops] for trace in (small, large)]
    same = names[0] == names[1] and len(small.held) == len(large.held)
    freed = [[min(event, 0.0) for event in trace.events] for trace in (small, large)]
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
