"""Batch axis: the sample dimension of a module's inputs.

The first dimension of a tensor is the batch by custom only: a recurrent network takes [time,
batch], and one observation has no batch at all. Some layers know better, and one call tells.
"""

from __future__ import annotations

from typing import Any, Iterator, Tuple

from .batches import Counter, Path, is_tensor, walk

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

    def __init__(self, torch: Any, module: Any, most: int = LAYERS) -> None:
        self.samples: list[tuple[int, int]] = []
        """(axis, size) of what layers with a place for the batch were given."""
        self.alone: bool | None = None
        """Every layer with a place for the batch was given one sample without a batch."""
        self.dtypes: dict[str, int] = {}
        """Parameters of the layers by dtype of their output."""
        self._nn = torch.nn
        self._layers: list[Any] = []
        self._observed = 0
        for layer in module.modules():
            if len(self._layers) < most and (_place(torch.nn, layer) or _own_size(layer)):
                layer._forward_hooks[KEY] = self._seen
                self._layers.append(layer)

    def _seen(self, layer: Any, args: Any, output: Any) -> None:
        self._observed += 1
        if self._observed > CALLS:
            return
        try:
            if getattr(output, "is_floating_point", bool)():
                name = str(output.dtype).rsplit(".", 1)[-1]
                self.dtypes[name] = self.dtypes.get(name, 0) + _own_size(layer)
            place = _place(self._nn, layer)
            if place is not None:
                self._observe(args[0], *place)
        except Exception:  # a layer with unusual arguments shows nothing
            pass

    def _observe(self, x: Any, without: int, axis: int | None) -> None:
        batched = x.dim() != without
        self.alone = not batched and self.alone is not False
        if batched and axis is not None:
            self.samples.append((axis, int(x.shape[axis])))

    def stop(self) -> None:
        """Take the hooks out."""
        for layer in self._layers:
            layer._forward_hooks.pop(KEY, None)
        self._layers = []

    def settle(self, counter: Counter, inputs: Any) -> None:
        """Let `counter` count along the batch axis of the observed call's `inputs`, if known."""
        found = list(_inputs(inputs))[:INPUTS]
        for axis, size in self.samples:
            for path, shape in found:
                if shape[axis : axis + 1] == (size,):
                    return counter.keep(path, axis)
            for path, shape in found:
                if shape[:2].count(size) == 1:
                    return counter.keep(path, shape.index(size))
        if self.alone:
            counter.keep(None, 0)
        return None


def known_parameters(held: Any) -> list[Any]:
    """Parameters that have a shape."""
    return [p for p in held.values() if p is not None and "Uninitialized" not in type(p).__name__]


def _own_size(layer: Any) -> int:
    """Parameters of a layer that computes by itself; a table of numbers computes nothing."""
    if layer._modules or "Embedding" in type(layer).__name__:
        return 0
    return sum(each.numel() for each in known_parameters(layer._parameters))


def _place(nn: Any, layer: Any) -> Tuple[int, int | None] | None:
    """Dimensions of a layer's input without a batch, and the place of the batch if it tells."""
    if isinstance(layer, nn.modules.conv._ConvNd):
        return len(layer.kernel_size) + 1, 0
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        return 0, 0
    if isinstance(layer, (nn.RNNBase, nn.MultiheadAttention)):
        return 2, int(not layer.batch_first)
    if isinstance(layer, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        return 2, int(not layer.self_attn.batch_first)
    return (1, None) if isinstance(layer, (nn.Linear, nn.RNNCellBase)) else None


def _inputs(inputs: Any) -> Iterator[Tuple[Path, Tuple[int, ...]]]:
    """Yield tensors with their shapes, and lists of tensors with their length."""
    for path, value in walk(inputs):
        if is_tensor(value):
            yield path, tuple(value.shape)
        elif len(path) > 1 and _is_list_of_tensors(value):
            yield path, (len(value),)


def _is_list_of_tensors(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(map(is_tensor, value))
