"""Batches of items of similar length.

The length of an item is read from the item itself, before the first batch; the order stays the
loader's own as far as it can: pools of many batches are drawn from it, each pool is cut into
batches by length, and those come in a random order.

Items are often stretched or cut at random as they are read. All of them are read with the same
seed, so that each is changed alike and the longer one stays the longer one.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any, Iterator, NamedTuple

from .batches import is_tensor, walk

POOL = 100
"""Batches that are sorted together."""
MOST_S = 30.0
"""Reading the items may take so long."""
SEED = 0
"""Every item is read with it."""
CHECKED = 16
"""Items that are read twice, to see whether the seed decides how long they are."""
READINGS, READINGS_S = 4, 5.0
"""Where it does not, all are read so often while that takes no longer, and their mean counts."""

clock = time.perf_counter


class Lengths(NamedTuple):
    """Lengths of items, and how they were read."""

    of_items: list[float]
    told_by: str
    """Expression for an `item`: `item[0].shape[0]`."""
    readings: int


class Buckets:
    """Batch sampler over the indices that `order` draws."""

    def __init__(
        self, order: Any, lengths: list[float], batch_size: int, drop_last: bool, mixed: bool
    ) -> None:
        self.sampler, self.batch_size, self.drop_last = order, batch_size, drop_last
        self._lengths = lengths
        self.mixed = mixed
        """The batches come in a random order, as the items did."""
        self._epoch = 0

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        keys = list(self.sampler)
        found: list[list[int]] = []
        for start in range(0, len(keys), POOL * self.batch_size):
            pool = keys[start : start + POOL * self.batch_size]
            pool.sort(key=self._lengths.__getitem__)
            found += [
                pool[at : at + self.batch_size] for at in range(0, len(pool), self.batch_size)
            ]
        if self.drop_last:
            found = [batch for batch in found if len(batch) == self.batch_size]
        if self.mixed:
            random.Random(self._epoch).shuffle(found)  # noqa: S311  an order, no secret
        self._epoch += 1
        return iter(found)


def put(torch: Any, given: dict[str, Any]) -> Lengths | str:
    """Put buckets into a DataLoader's arguments.

    Returns the lengths, or the reason for none.
    """
    data, utils = given["dataset"], torch.utils.data
    if given.get("batch_sampler") is not None or given.get("batch_size", 1) is None:
        return "the program makes its batches itself"
    if isinstance(data, utils.IterableDataset):
        return "the data set is an iterable one: its items come in its own order"
    order = given.get("sampler")
    if order is not None and not type(order).__module__.startswith("torch.utils.data"):
        return f"{type(order).__name__} draws the items, and its keys may be no indices"
    found = lengths_of(torch, data)
    if isinstance(found, str):
        return found
    if order is None:
        shuffled = bool(given.get("shuffle"))
        order = (
            utils.RandomSampler(data, generator=given.get("generator"))
            if shuffled
            else utils.SequentialSampler(data)
        )
    mixed = not isinstance(order, utils.SequentialSampler)
    batch, drop_last = given.get("batch_size", 1), bool(given.get("drop_last"))
    for name in ("sampler", "shuffle", "batch_size", "drop_last"):
        given.pop(name, None)
    given["batch_sampler"] = Buckets(order, found.of_items, batch, drop_last, mixed)
    return found


def lengths_of(torch: Any, data: Any) -> Lengths | str:
    """Return every item's length, or the reason for none."""
    states = _random_states(torch)
    began = clock()
    passes: list[list[int]] = []
    place: Any = None
    try:
        while len(passes) < READINGS:
            found = _read(torch, data, began + MOST_S, place)
            if isinstance(found, str):
                return found
            lengths, place = found
            passes.append(lengths)
            few = range(min(CHECKED, len(lengths)))
            decided = all(_item(torch, data, each)[place] == lengths[each] for each in few)
            if decided or clock() - began > READINGS_S / 2:
                break
    finally:
        _put_back(torch, states)
    of_items = [sum(each) / len(passes) for each in zip(*passes)]
    return Lengths(of_items, place, len(passes))


def _read(torch: Any, data: Any, until: float, place: Any) -> tuple[list[int], Any] | str:
    """Read the lengths, and the place of their dimension."""
    sizes: list[dict[str, int]] = []
    for index in range(len(data)):
        sizes.append(_item(torch, data, index))
        if clock() > until:
            return f"to read the length of every item takes more than {MOST_S:g} s"
    if not sizes or any(each.keys() != sizes[0].keys() for each in sizes):
        return "its items are not alike"
    if place is None:
        varying = [each for each in sizes[0] if len({of_one[each] for of_one in sizes}) > 1]
        if not varying:
            return "all of its items have one length"
        place = max(varying, key=lambda each: sum(of_one[each] for of_one in sizes))
    return [each[place] for each in sizes], place


def _item(torch: Any, data: Any, index: int) -> dict[str, int]:
    """Return the dimensions of one seeded item."""
    random.seed(SEED)
    torch.default_generator.manual_seed(SEED)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(SEED)
    return _sizes(data[index])


def _sizes(item: Any) -> dict[str, int]:
    """Return every dimension of an item's contents."""
    found: dict[str, int] = {}
    for path, value in walk(item):
        name = "item" + "".join(f"[{key!r}]" if by_item else f".{key}" for by_item, key in path)
        if is_tensor(value):
            found.update((f"{name}.shape[{n}]", int(size)) for n, size in enumerate(value.shape))
        elif isinstance(value, (list, tuple)) and path and _numbers(value):
            found[f"len({name})"] = len(value)
    return found


def _numbers(value: Any) -> bool:
    return bool(value) and isinstance(value[0], (int, float))


def _random_states(torch: Any) -> tuple[Any, Any, Any]:
    numpy = sys.modules.get("numpy")
    return random.getstate(), torch.get_rng_state(), numpy and numpy.random.get_state()


def _put_back(torch: Any, states: tuple[Any, Any, Any]) -> None:
    random.setstate(states[0])
    torch.set_rng_state(states[1])
    if states[2]:
        sys.modules["numpy"].random.set_state(states[2])
