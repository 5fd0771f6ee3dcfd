"""Rates measured on cards, kept in a project's state folder."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, Field, PositiveFloat, TypeAdapter, ValidationError

from advisor.files import atomic
from advisor.machine import profiles
from advisor.model import GpuProfile

FILE = "cards.json"
REACHED = 0.9
"""Share of a datasheet's rates reached by a large product or copy.

Judgement, measured on no card: a measured rate over this stands in the place of the datasheet's, so
too small makes each prediction for that card too fast."""


class Rates(BaseModel, frozen=True, allow_inf_nan=False):
    """Rates of one card; None: it has no such precision."""

    name: str
    memory_gib: PositiveFloat
    measured_on: str = Field(default_factory=lambda: datetime.now(UTC).date().isoformat())
    launch_s: PositiveFloat
    bandwidth_gb_per_s: PositiveFloat
    fp32_tflops: PositiveFloat
    tf32_tflops: PositiveFloat | None = None
    bf16_tflops: PositiveFloat | None = None
    fp16_tflops: PositiveFloat


MEASURED = TypeAdapter(tuple[Rates, ...])


def kept(folder: Path) -> tuple[Rates, ...]:
    """Rates in a state folder, newest last; none from an unreadable file."""
    with contextlib.suppress(OSError, ValidationError):
        return MEASURED.validate_json((folder / FILE).read_bytes())
    return ()


def keep(folder: Path, measured: Sequence[Rates]) -> None:
    """Keep rates, in place of earlier ones of the same cards."""
    new = {
        (rates.name, round(rates.memory_gib)): rates for rates in (*kept(folder), *measured)
    }
    atomic.place(folder / FILE, MEASURED.dump_json(tuple(new.values()), indent=2), 0o600)


def applied(card: GpuProfile, known: Sequence[Rates]) -> GpuProfile:
    """Profile with rates measured on such cards, if any, as datasheet peaks."""
    for rates in known:
        profile = profiles.match(rates.name, rates.memory_gib)
        if profile is not None and profile.name == card.name:
            dumped = rates.model_dump(
                exclude={"name", "memory_gib", "measured_on", "launch_s"}
            )
            peaks = {name: rate / REACHED for name, rate in dumped.items() if rate}
            return replace(
                card, **peaks, launch_s=rates.launch_s, measured_on=rates.measured_on
            )
    return card
