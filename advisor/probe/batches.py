"""Items in a batch of any container.

A batch may be a tensor, a dict, a list of pictures of unequal size, a graph, or an object of the
program's own. Nothing says which of its axes is the batch: the first one is the usual, but time
comes first in torch's own recurrent layers and transformers. Two witnesses are heard:

    the batch asked for      the axis that has as many entries as the loader was asked for
    the layers               those with a fixed place for the batch (convolutions, batch norms,
                             RNNs, attention) show which size the network takes for the batch

The first batch is searched in full; the path to what counted there serves those after it.
"""

from __future__ import annotations

import itertools
import zlib
from typing import Any, Iterator, NamedTuple, Sequence

Path = tuple[Any, ...]
"""Steps into a nested value: by item or attribute."""

# By judgement: a batch is found within, and a structure without end is left.
DEPTH = 6
"""Levels of a nested batch that are searched."""
WIDTH = 64
"""Parts of one container that are searched."""
BATCH_DEPTH, SEQUENCE_DEPTH = 1.5, 0.5
"""Levels added to the depth of a sequence: of the batch itself, and of one inside it.

Of several parts with as many entries as the batch, the least deep one is the count. A tensor is
believed before a list beside it, since lengths of lists meet the batch by chance: a pair of
inputs and labels is a batch of two, and one image may have as many boxes as there are images."""


class _Part(NamedTuple):
    """Axis that may be the batch's."""

    size: float
    depth: float
    """Levels below the batch."""
    path: Path


def _shallowest(parts: list[_Part]) -> _Part:
    return min(parts, key=lambda part: part.depth)


class ItemCount:
    """Count of items in successive batches of one source.

    `expected`: items asked of the loader, if any.
    `least_depth`: a less deep sequence is a container, whose length counts nothing.
    """

    def __init__(self, expected: float | None = None, least_depth: int = 0) -> None:
        self.expected = expected
        self._least_depth = least_depth
        self._path: Path | None = None
        self.axis = 0
        """Axis of its items, in the part that counts them."""
        self.guessed = False
        """The batch asked for is the size of no axis, and no layer told another."""
        self._constant: float | None = None
        """Items of every batch; None: they are counted."""

    def keep(self, path: Path | None, axis: int) -> None:
        """Count along `axis` of the value at `path`; without one a batch is one item."""
        self.guessed = False
        self._path, self.axis = path, axis
        self._constant = 1.0 if path is None else None

    def count(self, batch: Any) -> float:
        """Items in `batch`, or 1 if unknown."""
        if self._constant is not None:
            return self._constant
        try:
            if self._path is not None:
                value = at(batch, self._path)
                shape = getattr(value, "shape", None)
                return shape[self.axis] if shape else len(value)
        except Exception:
            self._path = None
        try:
            return self._search(batch)
        except Exception:  # a proxy of a tracer, an object that fights back
            return self.expected or 1.0

    def _search(self, batch: Any) -> float:
        """Find what counts the items: the size asked for, or the commonest.

        In this order: a first axis or a sequence of the size asked for, the least deep one; a
        second axis of it, where time comes first; an item without a batch axis; else the size
        that most first axes have.
        """
        tensors: list[_Part] = []
        sequences: list[_Part] = []
        second: list[_Part] = []  # where the first axis is time
        for path, value in walk(batch):
            if is_tensor(value):
                if len(value.shape):
                    tensors.append(_Part(float(value.shape[0]), len(path), path))
                if len(value.shape) > 1:
                    second.append(_Part(float(value.shape[1]), len(path), path))
            elif isinstance(value, (list, tuple)) and len(path) >= self._least_depth:
                depth = len(path) + (SEQUENCE_DEPTH if path else BATCH_DEPTH)
                sequences.append(_Part(float(len(value)), depth, path))
        asked = self.expected
        fitting = [part for part in tensors + sequences if part.size == asked]
        if fitting:
            self.keep(_shallowest(fitting).path, 0)
            return fitting[0].size
        # many a second axis has one entry: that is no sign of a batch of one
        fitting = [part for part in second if part.size == asked] if asked != 1 else []
        if fitting:
            self.keep(_shallowest(fitting).path, 1)
            return fitting[0].size
        pool = tensors or sequences
        if not pool or (asked and (not tensors or asked == 1)):
            # an item without batch dimension, or a collation that hides it
            self._constant = asked or 1.0
            return self._constant
        sizes = [part.size for part in pool]
        common = max(sizes, key=sizes.count)  # of equals the first
        self.keep(pool[sizes.index(common)].path, 0)
        self.guessed = asked is not None
        return common

    def believe(
        self, size: int, items: float, shapes: Sequence[tuple[Path, tuple[int, ...]]]
    ) -> None:
        """Count along the axis that the layers took for the batch.

        `size` is the batch that layers with a place for it were given, `items` and `shapes` are
        those of the source's latest batch. Where the batch asked for was counted, a program
        may give parts of it to its network, or several views together: then the axis stays,
        as it does where `size` is nowhere.
        """
        if size == items:
            self.guessed = False
            return
        divides = size % items == 0 or items % size == 0
        if (
            items == self.expected and divides
        ):  # the network gets parts or views of the batch
            return
        for axis in (0, 1):
            for path, shape in shapes:
                if shape[axis : axis + 1] == (size,):
                    self.keep(path, axis)
                    return


def is_tensor(value: Any) -> bool:
    """Return True for a tensor-like array with a `shape`."""
    try:
        return isinstance(getattr(value, "shape", None), tuple) and hasattr(value, "dtype")
    except Exception:  # it answers for what it lacks in its own way
        return False


def at(value: Any, path: Path) -> Any:
    for by_item, key in path:
        value = value[key] if by_item else getattr(value, key)
    return value


def _children(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict) or callable(getattr(value, "keys", None)):
        for key in list(value.keys())[:WIDTH]:
            yield (True, key), value[key]
    elif isinstance(value, (list, tuple)):
        for index, child in enumerate(value[:WIDTH]):
            yield (True, index), child
    elif not isinstance(value, (str, bytes, int, float, type(None), type)):
        attributes = getattr(value, "__dict__", None)
        names = (
            list(attributes)
            if isinstance(attributes, dict)
            else list(getattr(value, "__slots__", ()))
        )
        for name in names[:WIDTH]:
            child = getattr(value, name, None)
            if child is not None:
                yield (False, name), child


def walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield a nested value's parts with their paths."""
    yield path, value
    if is_tensor(value) or len(path) >= DEPTH:
        return
    try:
        children = list(_children(value))
    except Exception:  # an unreadable part hides no other
        return
    for step, child in children:
        yield from walk(child, (*path, step))


def tensors_in(value: Any, limit: int = 16) -> list[Any]:
    parts = (child for _, child in walk(value) if is_tensor(child))
    return list(itertools.islice(parts, limit))


KEY = -7004
"""Key of these hooks in torch's dicts: its own are never negative.

Source: `RemovableHandle` of torch/utils/hooks.py counts from 0 up, so any number below 0 that no
other hook of ours has would do."""
LAYERS = 96
"""Most layers observed in a call.

Judgement: fewer may all lie before the first layer with a place for the batch, more slow the few
calls looked at."""


class LayerObserver:
    """Observer of one module's layers during one call."""

    def __init__(self, torch: Any, module: Any) -> None:
        self.samples: list[tuple[int, int]] = []
        """(axis, size) given to layers with a place for the batch."""
        self.unbatched: bool | None = None
        """Every layer with a place for the batch got one sample without it; None: no such layer."""
        self.dtypes: dict[str, int] = {}
        """Parameters of the layers by dtype of their output."""
        self.products: dict[str, float] = {}
        """Multiplications of the layers' weights, by kind of product."""
        self._nn = torch.nn
        self._layers: list[Any] = []
        for layer in module.modules():
            if len(self._layers) < LAYERS and (_place(torch.nn, layer) or _own_size(layer)):
                layer._forward_hooks[KEY] = self._seen
                self._layers.append(layer)

    def _seen(self, layer: Any, args: Any, output: Any) -> None:
        try:
            # recurrent layers return their states beside the output
            first = output[0] if isinstance(output, tuple) else output
            if getattr(first, "is_floating_point", bool)():
                name = str(first.dtype).rsplit(".", 1)[-1]
                self.dtypes[name] = self.dtypes.get(name, 0) + _own_size(layer)
                kind = _product(self._nn, layer)
                if kind is not None:
                    convolves = kind == "convolution"
                    channels = layer.out_channels if convolves else first.shape[-1]
                    # each weight multiplies once at every position of the output
                    done = _own_size(layer) * first.numel() / max(1, int(channels))
                    self.products[kind] = self.products.get(kind, 0.0) + done
            place = _place(self._nn, layer)
            if place is not None:
                without, axis = place
                # an EmbeddingBag may take the ids of all bags in one row: rows are in its output
                bags = isinstance(layer, self._nn.EmbeddingBag)
                rows = output if bags else args[0]
                batched = rows.dim() != without
                if batched:
                    self.unbatched = False
                elif self.unbatched is None:
                    self.unbatched = True
                if batched and axis is not None:
                    self.samples.append((axis, int(rows.shape[axis])))
        except Exception:  # a layer with unusual arguments shows nothing
            pass

    @property
    def size(self) -> int | None:
        """Batch that most layers with a place for it were given; None without one."""
        sizes = [size for _, size in self.samples]
        return max(sizes, key=sizes.count) if sizes else None

    def stop(self) -> None:
        for layer in self._layers:
            layer._forward_hooks.pop(KEY, None)

    def settle(self, counter: ItemCount, inputs: Any) -> None:
        """Let `counter` count along the batch axis of `inputs`, if the layers showed it.

        First by size and axis; else by an input that has this size in just one of its first two
        axes, as where a network turns [batch, time] around. Layers given one sample make it one.
        """
        shapes = list(shapes_in(inputs))
        for axis, size in self.samples:
            for path, shape in shapes:
                if shape[axis : axis + 1] == (size,):
                    counter.keep(path, axis)
                    return
            for path, shape in shapes:
                if shape[:2].count(size) == 1:
                    counter.keep(path, shape.index(size))
                    return
        if self.unbatched:
            counter.keep(None, 0)


def settle_recurrent(nn: Any, module: Any, counter: ItemCount, inputs: Any) -> None:
    """Count along the batch axis of recurrent layers that no hook may enter."""
    layers = (layer for layer in module.modules() if isinstance(layer, nn.RNNBase))
    layer = next(layers, None)
    if layer is not None:
        axis = int(not layer.batch_first)
        rows = (path for path, shape in shapes_in(inputs) if len(shape) > axis)
        counter.keep(next(rows, None), axis)


def known_parameters(held: Any) -> list[Any]:
    """Parameters with a shape."""
    return [
        p
        for p in held.values()
        if p is not None and "Uninitialized" not in type(p).__name__
    ]


def products_of(nn: Any, module: Any) -> dict[str, float]:
    """Weights of a module's layers by kind of product; of code that no hook may enter."""
    products: dict[str, float] = {}
    for layer in module.modules():
        kind = _product(nn, layer)
        if kind is not None:
            products[kind] = products.get(kind, 0.0) + _own_size(layer)
    return products


def _product(nn: Any, layer: Any) -> str | None:
    """Kind of product that a layer's weights go into; each has its switch for TF32."""
    if isinstance(layer, nn.modules.conv._ConvNd):
        return "convolution"
    if isinstance(layer, nn.RNNBase):
        return "recurrent"
    weight = getattr(layer, "weight", None)
    matrix = getattr(weight, "dim", int)() == 2 and _own_size(layer)
    return "matrix" if matrix else None


def _own_size(layer: Any) -> int:
    """Parameters of a layer that computes by itself, which a table does not."""
    if layer._modules or "Embedding" in type(layer).__name__:
        return 0
    return sum(parameter.numel() for parameter in known_parameters(layer._parameters))


def _place(nn: Any, layer: Any) -> tuple[int, int | None] | None:
    """Axes of a layer's input for one sample, and the axis of the batch where there is one more.

    The second is None where it is not fixed: a Linear tells one sample from several, but its
    batch axis may be the first or, of time, the second. Without such a place the whole is None.
    Zero axes: a layer that always takes a batch.
    """
    if isinstance(layer, nn.modules.conv._ConvNd):
        return len(layer.kernel_size) + 1, 0
    if isinstance(layer, (nn.modules.batchnorm._BatchNorm, nn.EmbeddingBag)):
        return 0, 0
    if isinstance(layer, (nn.RNNBase, nn.MultiheadAttention)):
        return 2, int(not layer.batch_first)
    if isinstance(layer, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        return 2, int(not layer.self_attn.batch_first)
    return (1, None) if isinstance(layer, (nn.Linear, nn.RNNCellBase)) else None


def shapes_in(inputs: Any) -> Iterator[tuple[Path, tuple[int, ...]]]:
    """Yield tensors with shapes, and lists of tensors with length."""
    for path, value in walk(inputs):
        if is_tensor(value):
            yield path, tuple(value.shape)
        elif (
            len(path) > 1
            and isinstance(value, (list, tuple))
            and all(map(is_tensor, value))
        ):
            yield path, (len(value),)


MASKS = ("attention_mask", "mask")
LEAST_POSITIONS = 8
"""Fewer positions are channels, and whole numbers beside them labels.

Judgement: larger leaves out short texts, smaller takes labels for lengths where the largest equals
the channels."""


def note_padding(counts: dict[str, int], batch: Any) -> bool:
    """Count rows, positions and padded ones; return False without evidence."""
    try:
        lengths, width = _lengths(batch)
    except Exception:  # of the program's kind, or another form
        return False
    positions = len(lengths) * width
    counts["rows"] += len(lengths)
    counts["positions"] += positions
    counts["padded"] += positions - sum(lengths)
    return True


def _lengths(batch: Any) -> tuple[list[int], int]:
    """Lengths of rows, and their width with padding. Raises LookupError.

    From a mask by its name, else from whole numbers that fit as lengths: one for each row of
    another tensor, the longest as long as that tensor is wide.
    """
    parts = [(path, value) for path, value in walk(batch) if is_tensor(value)]
    shapes = [tuple(value.shape[:2]) for _, value in parts]
    whole = [(path, value) for path, value in parts if _is_whole(value)]
    for path, value in whole:
        if path and path[-1][1] in MASKS and len(value.shape) == 2:
            return (value != 0).sum(1).tolist(), int(value.shape[1])
    for _, value in whole:
        lengths = value.tolist() if len(value.shape) == 1 else []
        width = max(lengths, default=0)
        if (
            width >= LEAST_POSITIONS
            and min(lengths) > 0
            and (len(lengths), width) in shapes
        ):
            return lengths, width
    raise LookupError


def _is_whole(value: Any) -> bool:
    """Return True for a tensor on the host without fractions."""
    host = getattr(getattr(value, "device", None), "type", None) == "cpu"
    return host and ("int" in str(value.dtype) or "bool" in str(value.dtype))


ROW_NUMBERS = 4
"""Numbers of a row that stand for it, evenly spread.

Judgement: fewer take rows that differ in few places for one. More cost each of the kept batches
time."""
ROW_TENSORS = 4
"""Tensors of a batch whose rows are told.

Judgement: fewer may be masks, which many rows share. More cost each of the kept batches time."""


def rows(batch: Any, items: float) -> list[int]:
    """A number for each row of a batch; one for all where rows are not found.

    It tells whether a row comes again, so a few of the row's values will do. Only what lies on the
    host is read: a copy from the card would wait for the card's work, and stop the program.
    """
    count = int(items)
    columns: list[list[Any]] = []
    whole: list[Any] = []
    for _, value in walk(batch):
        if len(columns) + len(whole) >= ROW_TENSORS:
            break
        if is_tensor(value):
            if getattr(getattr(value, "device", None), "type", "cpu") == "cpu":
                plain = value.detach() if hasattr(value, "detach") else value
                by_row = _by_row(plain, count)
                if by_row is None:
                    flat = plain.reshape(-1)
                    whole.append(
                        flat[:: max(1, len(flat) // ROW_NUMBERS)][:ROW_NUMBERS].tolist()
                    )
                else:
                    columns.append(by_row)
        elif isinstance(value, (list, tuple)) and len(value) == count and _is_plain(value):
            columns.append(list(value))
    if not columns:
        return [_number(whole)] if whole else []
    return [_number(row) for row in zip(*columns)]


def _by_row(tensor: Any, count: int) -> list[Any] | None:
    """A few numbers of each row, along the first axis of that size."""
    shape = tuple(tensor.shape)
    if count < 1 or count not in shape:
        return None
    axis = shape.index(count)
    row = tensor.swapaxes(0, axis) if axis else tensor
    while len(row.shape) > 2:  # the middle line of a picture; a reshape might copy it all
        row = row[:, row.shape[1] // 2]
    row = row if len(row.shape) > 1 else row.reshape(count, 1)
    numbers: list[Any] = row[:, :: max(1, row.shape[1] // ROW_NUMBERS)][
        :, :ROW_NUMBERS
    ].tolist()
    return numbers


def _is_plain(values: Any) -> bool:
    return bool(values) and all(isinstance(value, (str, int, float)) for value in values)


def _number(content: Any) -> int:
    """Number of a row: equal in every process, as hashes of numbers are and of text are not."""
    plain = (
        zlib.crc32(part.encode())
        if isinstance(part, str)
        else tuple(part)
        if isinstance(part, list)
        else part
        for part in content
    )
    return hash(tuple(plain)) & 0x7FFFFFFF
