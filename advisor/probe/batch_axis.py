"""Batch axis: the sample dimension of a module's inputs.

The first dimension of a tensor is the batch by custom only: a recurrent network takes [time,
batch], and one observation has no batch at all. Layers know better: a convolution, a recurrent
cell, attention, a batch norm each have a place for it. Of token ids without any such layer the
sample dimension is unknown, and tokens are counted.
"""

from __future__ import annotations

import math
import sys
from typing import Any, Callable, Iterator, Tuple

from . import batches

Path = Tuple[Any, ...]
Shape = Tuple[int, ...]
Rule = Callable[["LayerObserver", Any, Any, Any], object]
"""Called with the observer, a layer, its first argument and its output."""

KEY = -7004
"""Key of these hooks in torch's dicts."""
LAYERS, LAYERS_LATER = 96, 16
"""Most layers that are observed in the first call, and in a later one."""
CALLS = 512
"""Limit of observed layer calls: a loop within one call repeats the same shapes."""
INPUTS = 16
"""Most tensors and lists among the inputs that are looked at."""


class LayerObserver:
    """Observer of one module's layers during one call."""

    def __init__(self, torch: Any, module: Any, compiled: bool, most: int = LAYERS) -> None:
        self.samples: list[tuple[int, int, int]] = []
        """(dimensions, axis, size) of what layers with a place for the batch were given."""
        self.flat: list[int] = []
        """Rows of linear layers' inputs: a batch, or dimensions folded into it."""
        self.alone: list[Shape] = []
        """Shapes given to layers without any batch."""
        self.ids: list[Shape] = []
        """Shapes given to embeddings."""
        self.lengths: list[int] = []
        """Sequence lengths of attention, and of a compiled module's tables."""
        self.sequential = False
        """Some layer works along a sequence."""
        self.dtypes: dict[str, int] = {}
        """Parameters of the layers by dtype of their output."""
        self._functional = torch.nn.functional
        self._layers: list[Any] = []
        self._functions: list[tuple[str, Any]] = []
        self._observed = 0
        self.compiled = compiled
        if compiled:
            self._read_tables(torch, module)
            return
        rules = _rules(torch.nn)
        for layer in module.modules():
            rule = next((rule for kinds, rule in rules if isinstance(layer, kinds)), None)
            skipped = layer._modules or isinstance(layer, torch.nn.Embedding)
            own = 0 if skipped else sum(p.numel() for p in _known(layer))
            if rule is not None or own:
                layer._forward_hooks[KEY] = self._hook(rule, own)
                self._layers.append(layer)
                if len(self._layers) == most:
                    break
        self._wrap("scaled_dot_product_attention", self._attention)
        self._wrap("softmax", self._softmax)

    def _read_tables(self, torch: Any, module: Any) -> None:
        """Read causal masks and position tables, without a hook."""
        shapes = [tuple(buffer.shape) for buffer in module.buffers()]
        self.lengths += [s[-1] for s in shapes if len(s) > 1 and s[-1] == s[-2]]
        sizes = [m.num_embeddings for m in module.modules() if isinstance(m, torch.nn.Embedding)]
        self.lengths += [size for size in sizes if size < max(sizes)]
        self.compiled = bool(sizes)

    def _hook(self, rule: Rule | None, own: int) -> Callable[..., None]:
        def hook(layer: Any, args: Any, output: Any) -> None:
            self._observed += 1
            if self._observed > CALLS:
                return
            try:
                if own and getattr(output, "is_floating_point", lambda: False)():
                    name = str(output.dtype).rsplit(".", 1)[-1]
                    self.dtypes[name] = self.dtypes.get(name, 0) + own
                if rule is not None:
                    rule(self, layer, args[0] if args else output, output)
            except Exception:  # a layer with unusual arguments shows nothing
                pass

        return hook

    def _wrap(self, name: str, observe: Callable[[Any], None]) -> None:
        """Observe the first argument of a function that attention uses."""
        original = getattr(self._functional, name, None)
        if original is None:
            return

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self._observed += 1
            try:
                if self._observed <= CALLS:
                    observe(next(iter((*args, *kwargs.values()))))
            except Exception:  # called in a way of its own
                pass
            return original(*args, **kwargs)

        self._functions.append((name, original))
        setattr(self._functional, name, wrapped)

    def _attention(self, query: Any) -> None:
        if query.dim() == 4:
            self.along(0, query)

    def _softmax(self, scores: Any) -> None:
        if scores.dim() > 2 and scores.shape[-1] == scores.shape[-2]:
            self.sequential = True
            self.lengths.append(int(scores.shape[-1]))

    def along(self, axis: int, x: Any) -> None:
        """Note a layer along a sequence, with the batch at `axis`."""
        self.sequential = True
        self.place(axis, x, without=2)

    def place(self, axis: int, x: Any, *, without: int) -> None:
        """Note the batch of `x`, which has `without` dimensions without one."""
        if x.dim() == without:
            self.alone.append(tuple(x.shape))
        else:
            self.samples.append((x.dim(), axis, int(x.shape[axis])))

    def stop(self) -> None:
        """Take the hooks out."""
        for layer in self._layers:
            layer._forward_hooks.pop(KEY, None)
        for name, original in self._functions:
            setattr(self._functional, name, original)
        self._layers, self._functions = [], []


def _known(layer: Any) -> list[Any]:
    """A layer's own parameters that have a shape."""
    own = [p for p in layer._parameters.values() if p is not None]
    return [p for p in own if "Uninitialized" not in type(p).__name__]


def _rules(nn: Any) -> tuple[tuple[Any, Rule], ...]:
    """Kinds of layers, and their rule for the batch."""
    transformers = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    return (
        (nn.modules.conv._ConvNd, _convolution),
        (nn.modules.batchnorm._BatchNorm, lambda seen, _, x, __: seen.place(0, x, without=0)),
        (nn.RNNBase, _recurrent),
        ((nn.RNNCellBase, nn.Linear), _rows),
        (nn.MultiheadAttention, lambda seen, m, _, y: seen.along(1 - m.batch_first, y[0])),
        (transformers, lambda seen, m, _, y: seen.along(1 - m.self_attn.batch_first, y)),
        # bags of ids, one behind the other, with their offsets
        (nn.EmbeddingBag, lambda seen, _, x, y: seen.samples.append((x.dim() + 1, 0, len(y)))),
        (nn.Embedding, lambda seen, _, x, __: seen.ids.append(tuple(x.shape))),
    )


def _convolution(seen: LayerObserver, layer: Any, x: Any, output: Any) -> None:
    seen.place(0, x, without=len(layer.kernel_size) + 1)


def _recurrent(seen: LayerObserver, layer: Any, x: Any, output: Any) -> None:
    axis = 1 - layer.batch_first
    sizes = getattr(x, "batch_sizes", None)
    if sizes is None:
        seen.along(axis, x)
    else:  # a packed sequence: so many are in its first time step
        seen.sequential = True
        seen.samples.append((3, axis, int(sizes[0])))


def _rows(seen: LayerObserver, layer: Any, x: Any, output: Any) -> None:
    if x.dim() == 1:
        seen.alone.append(tuple(x.shape))
    elif x.dim() == 2:
        seen.flat.append(int(x.shape[0]))


# --- the inputs ---------------------------------------------------------------------------


class BatchAxis:
    """Place of samples and tokens in a root's inputs."""

    def __init__(
        self,
        path: Path | None = None,
        axis: int | None = None,
        *,
        alone: bool = False,
        mapped: bool = False,
        tokens: Path | None = None,
    ) -> None:
        self.path = path
        self.axis = axis
        """Dimension of the tensor at `path`; None: `path` leads to a list of samples."""
        self.alone = alone
        """Each call is one sample without a batch dimension."""
        self._mapped = mapped
        """The samples are hidden by `torch.func.vmap`."""
        self.tokens = tokens
        """Path to the token ids, where each position is a token."""

    @property
    def unit(self) -> str:
        """Unit of the count."""
        return "token" if self.path is None and not self.alone else "sample"

    def count(self, inputs: Any) -> float | None:
        """Units in one call, or None if the inputs changed."""
        if self.alone:
            return 1.0
        if self.path is None:
            return self.count_tokens(inputs)
        try:
            value = batches.at(inputs, self.path)
            if self._mapped:
                return _mapped(value)
            return float(len(value) if self.axis is None else value.shape[self.axis])
        except Exception:
            return None

    def count_tokens(self, inputs: Any) -> float | None:
        """Token positions in one call, padding included."""
        try:
            return None if self.tokens is None else float(batches.at(inputs, self.tokens).numel())
        except Exception:
            return None


def _mapped(value: Any) -> float | None:
    """Count of samples hidden by `torch.func.vmap`."""
    functorch: Any = getattr(sys.modules["torch"]._C, "_functorch", None)
    wrapped = getattr(functorch, "is_functorch_wrapped_tensor", None)
    while wrapped is not None and wrapped(value):
        inside = functorch.get_unwrapped(value)
        if functorch.is_batchedtensor(value):
            return float(inside.shape[functorch.maybe_get_bdim(value)])
        value = inside
    return None


class _Input:
    """Input tensor, or list of tensors."""

    def __init__(self, path: Path, value: Any) -> None:
        self.path = path
        self.listed = isinstance(value, (list, tuple))
        self.shape: Shape = (len(value),) if self.listed else tuple(value.shape)
        kind = str(getattr(value, "dtype", ""))
        self.integer = not self.listed and "int" in kind and "uint8" not in kind
        self.mapped = not self.listed and _mapped(value) is not None


def find(seen: LayerObserver, inputs: Any, output: Any, loaded: float | None) -> BatchAxis | None:
    """Find the batch axis of the observed call's `inputs`.

    Returns None without evidence from layers or token ids.

    `loaded`: items of the loader's batch that the call belongs to, where there is one.
    """
    found = _inputs(inputs)
    plain = [each for each in found if not each.listed and each.shape]
    mapped = next((each for each in plain if each.mapped), None)
    if mapped is not None:
        return BatchAxis(mapped.path, mapped=True)
    ids = next((each for each in plain if _is_ids(each, seen)), None)
    outputs = [tuple(value.shape) for value in batches.tensors_in(output, 1)]
    tokens = ids.path if ids is not None and _are_sequences(ids, seen, outputs) else None
    alone = any(_is_alone(each, seen) for each in plain)
    rows = [(2, 0, size) for size in seen.flat]
    places = list(_places(seen.samples, found))
    if not places and ids is not None and not _is_alone(ids, seen):
        axis = _axis_of_ids(ids, seen, outputs, loaded) if len(ids.shape) == 2 else 0
        if axis is None:
            return BatchAxis(tokens=ids.path)
        places = [(ids.path, axis)]
    places = places or list(_places(rows, [each for each in plain if len(each.shape) > 1]))
    if places:
        return BatchAxis(*places[0], tokens=tokens)
    return BatchAxis(alone=True, tokens=tokens) if alone else None


def _inputs(inputs: Any) -> list[_Input]:
    found: list[_Input] = []
    for path, value in batches.walk(inputs):
        listed = isinstance(value, (list, tuple)) and value and len(path) > 1
        if batches.is_tensor(value) or (listed and all(map(batches.is_tensor, value))):
            found.append(_Input(path, value))
    return found[:INPUTS]


def _is_ids(each: _Input, seen: LayerObserver) -> bool:
    embedded = each.shape in seen.ids or (seen.compiled and len(each.shape) == 2)
    return each.integer and 1 <= len(each.shape) <= 2 and embedded


def _is_alone(each: _Input, seen: LayerObserver) -> bool:
    """Return True if a layer received this input unbatched."""
    return any(
        math.prod(shape) == math.prod(each.shape) or (each.integer and shape[:1] == each.shape)
        for shape in seen.alone
    )


def _are_sequences(ids: _Input, seen: LayerObserver, outputs: list[Shape]) -> bool:
    """Return True if the ids are token sequences."""
    many = math.prod(ids.shape)
    each = any(
        len(shape) > 1 and (shape[: len(ids.shape)] == ids.shape or shape[0] == many)
        for shape in outputs
    )
    return seen.sequential or each or any(length in ids.shape for length in seen.lengths)


def _places(
    samples: list[tuple[int, int, int]], found: list[_Input]
) -> Iterator[tuple[Path, int | None]]:
    """Yield inputs and dimensions that fit a layer's batch, best first."""
    tensors = [each for each in found if not each.listed]
    for dims, axis, size in samples:
        fits = [e for e in tensors if axis < len(e.shape) and e.shape[axis] == size]
        # an embedding adds a dimension
        yield from ((e.path, axis) for e in fits if len(e.shape) + e.integer == dims)
        yield from ((e.path, None) for e in found if e.listed and e.shape[0] == size)
        yield from ((e.path, axis) for e in fits)
        once = [e for e in tensors if e.shape[:2].count(size) == 1]
        yield from ((e.path, e.shape.index(size)) for e in once)
        folded = [e for e in tensors if len(e.shape) > 1 and e.shape[0] * e.shape[1] == size]
        yield from ((e.path, 0) for e in folded)


def _axis_of_ids(
    ids: _Input, seen: LayerObserver, outputs: list[Shape], loaded: float | None
) -> int | None:
    """Sample dimension of 2-D token ids, or None."""
    positions = [shape[-1] for shape in seen.ids if len(shape) == 1 or shape[:-1] == (1,)]
    for length in [*positions, *seen.lengths]:
        if length in ids.shape and ids.shape not in ((1, length), (length,)):
            return 0 if ids.shape[0] == ids.shape[1] else 1 - ids.shape.index(length)
    pooled = [shape[0] for shape in outputs if 1 <= len(shape) <= 2]
    sizes = [loaded, *seen.flat, *pooled]
    return next((ids.shape.index(size) for size in sizes if size in ids.shape), None)
