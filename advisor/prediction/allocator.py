"""Memory that torch's caching allocator takes for a step.

Rules of torch's CUDACachingAllocator: sizes are rounded to 512 bytes; up to 1 MiB they come from
segments of 2 MiB, up to 10 MiB from segments of 20 MiB, above from segments rounded to 2 MiB. A
free block is split where enough of it is left, and merged with free neighbours.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from advisor.prediction.trace import Trace

MIB = 1 << 20
ROUND = 512
SMALL, SMALL_SEGMENT = MIB, 2 * MIB
MIDDLE, MIDDLE_SEGMENT = 10 * MIB, 20 * MIB
SPLIT_REMAINDER = {True: ROUND, False: MIB + ROUND}
"""Least rest of a split block, of small and of large ones."""


class Peak(NamedTuple):
    """Peaks of one step, in bytes."""

    allocated: float
    reserved: float


@dataclass(slots=True)
class _Block:
    size: int
    free: bool
    before: _Block | None = None
    after: _Block | None = None


@dataclass(slots=True)
class _Pool:
    """Free blocks of one pool, ordered by size."""

    small: bool
    sizes: list[int] = field(default_factory=list)
    blocks: list[_Block] = field(default_factory=list)

    def add(self, block: _Block) -> None:
        at = bisect.bisect_left(self.sizes, block.size)
        self.sizes.insert(at, block.size)
        self.blocks.insert(at, block)

    def take(self, size: int) -> _Block | None:
        """Smallest free block that holds `size`."""
        at = bisect.bisect_left(self.sizes, size)
        if at == len(self.sizes):
            return None
        self.sizes.pop(at)
        return self.blocks.pop(at)

    def drop(self, block: _Block) -> None:
        at = bisect.bisect_left(self.sizes, block.size)
        while self.blocks[at] is not block:
            at += 1
        self.sizes.pop(at)
        self.blocks.pop(at)


class Allocator:
    """Caching allocator of one card with unlimited memory."""

    def __init__(self) -> None:
        self.allocated = 0
        self.reserved = 0
        self.peak = Peak(0, 0)
        self._pools = {True: _Pool(small=True), False: _Pool(small=False)}

    def take(self, size: float) -> _Block:
        """Allocate `size` bytes."""
        wanted = max(ROUND, math.ceil(size / ROUND) * ROUND)
        pool = self._pools[wanted <= SMALL]
        block = pool.take(wanted)
        if block is None:
            block = _Block(_segment(wanted), free=True)
            self.reserved += block.size
        if block.size - wanted >= SPLIT_REMAINDER[pool.small]:
            rest = _Block(block.size - wanted, free=True, before=block, after=block.after)
            if block.after is not None:
                block.after.before = rest
            block.size, block.after = wanted, rest
            pool.add(rest)
        block.free = False
        self.allocated += block.size
        self.peak = Peak(
            max(self.peak.allocated, self.allocated), max(self.peak.reserved, self.reserved)
        )
        return block

    def give(self, block: _Block, *, small: bool) -> None:
        """Free a block, and merge it with free neighbours."""
        self.allocated -= block.size
        block.free = True
        pool = self._pools[small]
        for other in (block.before, block.after):
            if other is not None and other.free:
                pool.drop(other)
        if block.after is not None and block.after.free:
            _join(block, block.after)
        if block.before is not None and block.before.free:
            block = _join(block.before, block)
        pool.add(block)


def _join(one: _Block, other: _Block) -> _Block:
    one.size += other.size
    one.after = other.after
    if other.after is not None:
        other.after.before = one
    return one


def _segment(size: int) -> int:
    if size <= SMALL:
        return SMALL_SEGMENT
    if size < MIDDLE:
        return MIDDLE_SEGMENT
    return math.ceil(size / SMALL_SEGMENT) * SMALL_SEGMENT


def peak_of(trace: Trace, steps: int = 2) -> Peak:
    """Peaks over some equal steps; what a step leaves is freed before the next."""
    allocator = Allocator()
    for size in trace.held:
        allocator.take(size)
    for _ in range(steps):
        made: list[tuple[_Block, bool] | None] = []
        for event in trace.events:
            if event >= 0:
                made.append((allocator.take(event), event <= SMALL))
            elif (held := made[int(-1 - event)]) is not None:
                allocator.give(held[0], small=held[1])
                made[int(-1 - event)] = None
        for left in made:
            if left is not None:
                allocator.give(left[0], small=left[1])
    return allocator.peak
