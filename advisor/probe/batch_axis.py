"""Batch axis: the sample dimension of a module's inputs.

The first dimension of a tensor is the batch by custom only: a recurrent network takes [time,
batch], and one observation has no batch at all. Some layers know better, and one call tells.
"""

from __future__ import annotations

from typing import Any, Iterator, Tuple

from . import batches

Path = Tuple[Any, ...]

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
        self.rows: list[int] = []
        """Rows of linear layers' inputs: a batch, or dimensions folded into it."""
        self.alone = False
        """Some layer was given one sample without a batch."""
        self.dtypes: dict[str, int] = {}
        """Parameters of the layers by dtype of their output."""
        self._linear = (torch.nn.Linear, torch.nn.RNNCellBase)
        self._layers: list[Any] = []
        self._observed = 0
        for layer in module.modules():
            place = _place(torch.nn, layer)
            skipped = layer._modules or isinstance(layer, torch.nn.Embedding)
            own = 0 if skipped else sum(p.numel() for p in known_parameters(layer._parameters))
            if place is not None or own:
                layer._forward_hooks[KEY] = self._hook(place, own)
                self._layers.append(layer)
                if len(self._layers) == most:
                    break

    def _hook(self, place: tuple[int, int] | None, own: int) -> Any:
        def hook(layer: Any, args: Any, output: Any) -> None:
            self._observed += 1
            if self._observed > CALLS:
                return
            try:
                if own and getattr(output, "is_floating_point", lambda: False)():
                    name = str(output.dtype).rsplit(".", 1)[-1]
                    self.dtypes[name] = self.dtypes.get(name, 0) + own
                if place is not None:
                    self._observe(layer, args[0], *place)
            except Exception:  # a layer with unusual arguments shows nothing
                pass

        return hook

    def _observe(self, layer: Any, x: Any, without: int, axis: int) -> None:
        if x.dim() == without:
            self.alone = True
        elif not isinstance(layer, self._linear):
            self.samples.append((axis, int(x.shape[axis])))
        elif x.dim() == 2:
            self.rows.append(int(x.shape[0]))

    def stop(self) -> None:
        """Take the hooks out."""
        for layer in self._layers:
            layer._forward_hooks.pop(KEY, None)
        self._layers = []


def known_parameters(held: Any) -> list[Any]:
    """Parameters that have a shape."""
    return [p for p in held.values() if p is not None and "Uninitialized" not in type(p).__name__]


def _place(nn: Any, layer: Any) -> tuple[int, int] | None:
    """Dimensions of a layer's input without a batch, and the place of the batch."""
    if isinstance(layer, nn.modules.conv._ConvNd):
        return len(layer.kernel_size) + 1, 0
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        return 0, 0
    if isinstance(layer, (nn.RNNBase, nn.MultiheadAttention)):
        return 2, int(not layer.batch_first)
    if isinstance(layer, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        return 2, int(not layer.self_attn.batch_first)
    return (1, 0) if isinstance(layer, (nn.Linear, nn.RNNCellBase)) else None


# --- the inputs ---------------------------------------------------------------------------


class BatchAxis:
    """Place of the samples in a module's inputs."""

    def __init__(self, path: Path | None = None, axis: int = 0) -> None:
        self.path = path
        """Of a tensor or a list of samples; None: each call is one sample without a batch."""
        self.axis = axis

    def count(self, inputs: Any) -> float | None:
        """Samples in one call, or None if the inputs changed."""
        if self.path is None:
            return 1.0
        try:
            value = batches.at(inputs, self.path)
            return float(value.shape[self.axis] if self.axis else len(value))
        except Exception:
            return None


def find(seen: LayerObserver, inputs: Any) -> BatchAxis | None:
    """Find the batch axis of the observed call's `inputs`; None without evidence."""
    found = list(_inputs(inputs))[:INPUTS]
    rows = [(0, size) for size in seen.rows]
    for axis, size in [*seen.samples, *rows]:
        for path, shape in found:
            if shape[axis : axis + 1] == (size,):
                return BatchAxis(path, axis)
        for path, shape in found:
            if shape[:2].count(size) == 1:
                return BatchAxis(path, shape.index(size))
    return BatchAxis() if seen.alone and not seen.samples and not rows else None


def _inputs(inputs: Any) -> Iterator[tuple[Path, tuple[int, ...]]]:
    """Yield tensors with their shapes, and lists of tensors with their length."""
    for path, value in batches.walk(inputs):
        if batches.is_tensor(value):
            yield path, tuple(value.shape)
            continue
        listed = isinstance(value, (list, tuple)) and len(path) > 1
        if listed and value and all(map(batches.is_tensor, value)):
            yield path, (len(value),)
