"""Memory taken by torch's caching allocator for a step.

The sum of the live tensors is less than what a card must have: torch asks CUDA for segments, cuts
blocks out of them, and keeps them for later. So the storages of a traced step are replayed, by
the rules of torch's CUDACachingAllocator: sizes are rounded to 512 bytes; up to 1 MiB come from
segments of 2 MiB, up to 10 MiB of 20 MiB, others of sizes rounded to 2 MiB. Free blocks are
split if enough is left, and merged. A full card first gets unused segments back.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from advisor.prediction.trace import Trace

MIB = 1 << 20
# Source: torch's c10/cuda/CUDACachingAllocator.cpp, where these are kMinBlockSize, kSmallSize,
# kSmallBuffer (and kRoundLarge), kMinLargeAlloc and kLargeBuffer.
ROUND = 512
"""Bytes to whose multiple torch's caching allocator rounds every request.

Source: `kMinBlockSize`, which torch 2.13 keeps in c10/core/AllocatorConfig.h."""
SMALL, SMALL_SEGMENT = MIB, 2 * MIB
"""Largest small request, and the segment that is asked of CUDA for it."""
MIDDLE, MIDDLE_SEGMENT = 10 * MIB, 20 * MIB
"""Requests below the first get a segment of the second size."""
SPLIT_REMAINDER = {True: ROUND, False: MIB + ROUND}
"""Least rest of a split block, small and large."""
BY_SIZE = attrgetter("size")


class Peak(NamedTuple):
    """Peaks of one step, in bytes."""

    allocated: float
    reserved: float


@dataclass(slots=True, eq=False)
class _Block:
    size: int
    small: bool
    free: bool = True
    before: _Block | None = None
    after: _Block | None = None


class Allocator:
    """Caching allocator of one card with `room` bytes."""

    def __init__(self, room: float = math.inf) -> None:
        self.room = room
        self.allocated = 0
        self.reserved = 0
        self.peak = Peak(0, 0)
        self._free: dict[bool, list[_Block]] = {True: [], False: []}
        """Free blocks, small and large ones, ordered by size."""

    def take(self, size: float) -> _Block:
        """Allocate `size` bytes. Raises MemoryError if the card lacks room."""
        wanted = max(ROUND, math.ceil(size / ROUND) * ROUND)
        small = wanted <= SMALL
        free = self._free[small]
        at = bisect.bisect_left(free, wanted, key=BY_SIZE)  # the smallest that is enough
        if at < len(free):
            block = free.pop(at)
        else:
            block = _Block(_segment(wanted), small)
            if self.reserved + block.size > self.room:
                self._release()
            self.reserved += block.size
            if self.reserved > self.room:
                raise MemoryError
        if block.size - wanted >= SPLIT_REMAINDER[small]:
            rest = _Block(block.size - wanted, small, before=block, after=block.after)
            if block.after is not None:
                block.after.before = rest
            block.size, block.after = wanted, rest
            bisect.insort_left(free, rest, key=BY_SIZE)
        block.free = False
        self.allocated += block.size
        self.peak = Peak(*map(max, self.peak, (self.allocated, self.reserved)))
        return block

    def give(self, block: _Block) -> None:
        """Free a block and merge it with free neighbours."""
        self.allocated -= block.size
        block.free = True
        free = self._free[block.small]
        if block.after is not None and block.after.free:
            free.remove(block.after)
            _join(block, block.after)
        if block.before is not None and block.before.free:
            free.remove(block.before)
            block = _join(block.before, block)
        bisect.insort_left(free, block, key=BY_SIZE)

    def _release(self) -> None:
        """Give whole free segments back to the card: blocks without a neighbour."""
        for blocks in self._free.values():
            split = [block for block in blocks if block.before or block.after]
            self.reserved -= sum(block.size for block in blocks) - sum(
                block.size for block in split
            )
            blocks[:] = split


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


def fits(trace: Trace, room: float) -> bool:
    try:
        peak_of(trace, room)
    except MemoryError:
        return False
    return True


def peak_of(trace: Trace, room: float = math.inf) -> Peak:
    """Peaks over two equal steps. Raises MemoryError where they do not fit in `room` bytes.

    What the first step leaves is freed before the second, which then finds the segments as the
    first one cut them. A larger block than those that are left needs a segment of its own.
    """
    allocator = Allocator(room)
    for size in trace.held:
        allocator.take(size)
    for _ in range(2):
        made: list[_Block] = []
        for event in trace.events:
            if event >= 0:
                made.append(allocator.take(event))
            else:
                allocator.give(made[int(-1 - event)])
        for left in made:
            if not left.free:
                allocator.give(left)
    return allocator.peak
