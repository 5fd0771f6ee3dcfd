"""What fills the memory of a training step, part by part, and what each grows with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.report import numbers

if TYPE_CHECKING:
    from advisor.report.model import Report

GROWS = {
    "model": "the parameters: width squared, depth",
    "gradients": "the parameters; twice while both old and new are held",
    "optimizer": "the parameters: Adam keeps two numbers for each, SGD with momentum one",
    "activations": "batch, depth, and size of the inputs; gradient checkpointing holds fewer",
    "workspace": "what backwards and updates make on the way: parameters, or the largest layer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a step's memory."""

    name: str
    gib: float
    share: float
    grows: str


def parts(report: Report) -> list[Part]:
    """The parts of the original's step, in the order of GROWS; none where that was not measured."""
    held = report.before.footprint_gib
    whole = sum(held.values())
    if not whole:
        return []
    return [
        Part(name=name, gib=held[name], share=held[name] / whole, grows=grows)
        for name, grows in GROWS.items()
        if name in held
    ]


def told(report: Report) -> str:
    """The whole, where it stands beside what the process holds, and what fills the largest part."""
    found = parts(report)
    whole = numbers.memory(sum(part.gib for part in found))
    largest = max(found, key=lambda part: part.gib)
    side = report.before
    of = f" with a batch of {numbers.count(side.batch)}" if side.batch else ""
    what = "the card's allocator gave out" if report.machine.gpus else "the process held"
    beside = f"; {what} {numbers.gib(side.peak_mem_gib)} at most" if side.peak_mem_gib else ""
    rest = " (Python, torch and the data too)" if beside and not report.machine.gpus else ""
    return (
        f"At its fullest moment a step of the original{of} held {whole} in tensors, added up by "
        f"their own sizes{beside}{rest}. The largest part, {numbers.percent(largest.share)}, is "
        f"{largest.name}."
    )
