"""Layout: the sample dimension of a module's inputs.

The first dimension of a tensor is the batch by custom only: a recurrent network takes [time,
batch], hidden states begin with the number of layers, one observation has no batch at all. Layers
know better: a convolution, a recurrent cell, attention, a batch norm each have a place for it. Of
token ids without any such layer it cannot be told which dimension is the sample's, and then it is
not told: tokens are counted.
"""

from __future__ import annotations

import math
import sys
from typing import Any, Sequence, Tuple

from . import batches
from .layers import LayerObserver, Shape

Path = Tuple[Any, ...]
"""Steps from (args, kwargs) to a value, as in `batches`."""

INPUTS = 16
"""Most tensors and lists among the inputs that are looked at."""


class Layout:
    """Layout of samples and tokens in a root's inputs."""

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
        self.mapped = mapped
        """As torch.func.vmap shows it: the samples are behind the tensor."""
        self.tokens = tokens
        """Way to the token ids, where each position is a token."""

    @property
    def unit(self) -> str:
        """Unit of the count."""
        return "token" if self.path is None and not self.alone else "sample"

    def count(self, inputs: Any) -> float | None:
        """Units in one call, or None if the layout changed."""
        if self.alone:
            return 1.0
        if self.path is None:
            return self.count_tokens(inputs)
        value = _at(inputs, self.path)
        if self.mapped:
            return _behind(value)
        axis = self.axis
        if axis is None:
            return float(len(value)) if isinstance(value, (list, tuple)) else None
        shape = getattr(value, "shape", ())
        return float(shape[axis]) if axis < len(shape) else None

    def count_tokens(self, inputs: Any) -> float | None:
        """Token positions in one call, padding included."""
        value = _at(inputs, self.tokens) if self.tokens is not None else None
        shape = getattr(value, "shape", None)
        return None if shape is None else float(math.prod(shape))


def _behind(value: Any) -> float | None:
    """Count of samples hidden by `torch.func.vmap`."""
    functorch: Any = getattr(sys.modules["torch"]._C, "_functorch", None)
    wrapped = getattr(functorch, "is_functorch_wrapped_tensor", None)
    while wrapped is not None and wrapped(value):
        inside = functorch.get_unwrapped(value)
        if functorch.is_batchedtensor(value):
            return float(inside.shape[functorch.maybe_get_bdim(value)])
        value = inside
    return None


def _at(value: Any, path: Path) -> Any:
    try:
        for by_item, key in path:
            value = value[key] if by_item else getattr(value, key)
    except Exception:
        return None
    return value


class _Input:
    """Input tensor, or list of tensors."""

    def __init__(self, path: Path, value: Any) -> None:
        self.path = path
        self.listed = isinstance(value, (list, tuple))
        self.shape: Shape = (len(value),) if self.listed else tuple(value.shape)
        kind = str(getattr(value, "dtype", ""))
        self.integer = not self.listed and ("int" in kind and "uint8" not in kind)


def judge(reported: LayerObserver, inputs: Any, output: Any, loaded: float | None) -> Layout | None:
    """Judge the layout of the observed call's `inputs`.

    Returns None without evidence from layers or token ids.

    `loaded`: items of the loader's batch that the call belongs to, where there is one.
    """
    found = _inputs(inputs)
    plain = [each for each in found if not each.listed and each.shape]
    if not plain:
        return None
    for each in plain:
        if _behind(_at(inputs, each.path)) is not None:
            return Layout(each.path, mapped=True)
    ids = next((each for each in plain if _is_ids(each, reported)), None)
    outputs = [tuple(value.shape) for value in batches.tensors_in(output, 1)]
    tokens = ids.path if ids is not None and _language(ids, reported, outputs) else None
    place = _by_layers(reported.samples, found)
    if place is None and ids is not None and not _is_alone(ids, reported):
        axis = _by_signs(ids, plain, reported, outputs, loaded)
        if axis is None:
            return Layout(tokens=ids.path) if len(ids.shape) == 2 else None
        place = ids.path, axis
    if place is None:
        rows = [(2, 0, size) for size in reported.flat]
        place = _by_layers(rows, [each for each in plain if len(each.shape) > 1])
    if place is None and any(_is_alone(each, reported) for each in plain):
        return Layout(alone=True, tokens=tokens)
    return Layout(*place, tokens=tokens) if place is not None else None


def placed(known: dict[str, Any], inputs: Any, judged: Layout | None) -> Layout | None:
    """Layout that an experiment showed, at dimension `axis`.

    Inputs of another form keep the `judged` layout.
    """
    tensors = [path for path, value in batches.walk(inputs) if batches.is_tensor(value)]
    if known["input"] >= len(tensors):
        return judged
    tokens = judged.tokens if judged is not None else None
    found = Layout(tensors[known["input"]], known["axis"], tokens=tokens)
    return judged if found.count(inputs) is None else found


def _inputs(inputs: Any) -> list[_Input]:
    found: list[_Input] = []
    for path, value in batches.walk(inputs):
        if batches.is_tensor(value):
            found.append(_Input(path, value))
        elif isinstance(value, (list, tuple)) and value and len(path) > 1:
            if not all(batches.is_tensor(each) for each in value):
                continue
            found.append(_Input(path, value))
        if len(found) == INPUTS:
            break
    return found


def _is_ids(each: _Input, reported: LayerObserver) -> bool:
    embedded = each.shape in reported.ids or (reported.embeds and len(each.shape) == 2)
    return each.integer and 1 <= len(each.shape) <= 2 and embedded


def _is_alone(each: _Input, reported: LayerObserver) -> bool:
    """Return True if a layer received this input unbatched."""
    return any(
        math.prod(shape) == math.prod(each.shape) or (each.integer and shape[:1] == each.shape)
        for shape in reported.alone
    )


def _language(ids: _Input, reported: LayerObserver, outputs: Sequence[Shape]) -> bool:
    """Return True if the ids are token sequences."""
    many = math.prod(ids.shape)
    each = any(
        len(shape) > 1 and (shape[: len(ids.shape)] == ids.shape or shape[0] == many)
        for shape in outputs
    )
    return reported.sequential or each or any(length in ids.shape for length in reported.lengths)


def _by_layers(
    samples: Sequence[tuple[int, int, int]], found: Sequence[_Input]
) -> tuple[Path, int | None] | None:
    """Find the input and dimension of a layer's batch."""
    tensors = [each for each in found if not each.listed]
    for dims, axis, size in samples:
        for each in tensors:
            made = len(each.shape) + each.integer  # an embedding adds a dimension
            if made == dims and axis < len(each.shape) and each.shape[axis] == size:
                return each.path, axis
        for each in found:
            if each.listed and each.shape[0] == size:
                return each.path, None
        for each in tensors:
            if len(each.shape) > axis and each.shape[axis] == size:
                return each.path, axis
        for each in tensors:
            if each.shape[:2].count(size) == 1:
                return each.path, each.shape[:2].index(size)
        for each in tensors:
            if len(each.shape) > 1 and each.shape[0] * each.shape[1] == size:
                return each.path, 0
    return None


def _by_signs(
    ids: _Input,
    plain: Sequence[_Input],
    reported: LayerObserver,
    outputs: Sequence[Shape],
    loaded: float | None,
) -> int | None:
    """Guess the sample dimension of 2-D token ids."""
    if len(ids.shape) != 2:
        return None
    given = [each.shape for each in plain]
    made = [shape for shape in reported.ids if shape not in given]
    positions = [shape[-1] for shape in made if len(shape) == 1 or shape[:-1] == (1,)]
    for length in [*positions, *reported.lengths]:
        if length in ids.shape:
            return 0 if ids.shape[0] == ids.shape[1] else 1 - ids.shape.index(length)
    hidden = [each.shape[1] for each in plain if not each.integer and len(each.shape) == 3]
    labels = [each.shape[0] for each in plain if each.integer and len(each.shape) == 1]
    pooled = [shape[0] for shape in outputs if 1 <= len(shape) <= 2]
    for size in [loaded, *hidden, *reported.flat, *labels, *pooled]:
        if size in ids.shape:
            return ids.shape.index(size)
    return None
