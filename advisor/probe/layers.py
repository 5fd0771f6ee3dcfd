"""Layers: batch dimensions observed during one call."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from . import module_tree

Shape = Tuple[int, ...]

KEY = -7004
"""Key of these hooks in torch's dicts."""
MODULES = 1024
LAYERS = 96
"""Most modules looked through, and layers listened to, in the one call."""
CALLS = 512
"""Limit of observed layer calls."""


class LayerObserver:
    """Observer of one module's layers during one call."""

    def __init__(self, torch: Any, quiet: bool) -> None:
        """Prepare; `quiet` skips a compiled module."""
        self.samples: list[tuple[int, int, int]] = []
        """(dimensions, axis, size) of what layers with a place for the batch were given."""
        self.flat: list[int] = []
        """Rows of linear layers' inputs: a batch, or dimensions folded into it."""
        self.alone: list[Shape] = []
        """Shapes given to layers without any batch."""
        self.ids: list[Shape] = []
        """Shapes given to embeddings."""
        self.embeds = False
        """It holds embeddings, and what they are given cannot be seen."""
        self.lengths: list[int] = []
        """Sequence lengths of positions, attention and masks."""
        self.sequential = False
        """Some layer works along a sequence."""
        self._layers: list[Any] = []
        self._functions: list[tuple[str, Any]] = []
        self._torch = torch
        self._quiet = quiet
        self._observed = 0

    def listen(self, module: Any) -> None:
        """Put the hooks in."""
        if self._quiet:
            self._look_at(self._torch, module)
            return
        for layer in module_tree.modules(module)[:MODULES]:
            observe = _observing(self._torch.nn, layer)
            if observe is not None and len(self._layers) < LAYERS:
                layer._forward_hooks[KEY] = self._hook(observe)
                self._layers.append(layer)
        self._wrap("scaled_dot_product_attention", self._attention)
        self._wrap("softmax", self._softmax)

    def _look_at(self, torch: Any, module: Any) -> None:
        """Read causal masks and position tables without a call."""
        for name, buffer in module.named_buffers():
            shape = tuple(buffer.shape)
            if len(shape) > 1 and shape[-1] == shape[-2] and "running" not in name:
                self.lengths.append(shape[-1])
        tables = [m for m in module_tree.modules(module) if isinstance(m, torch.nn.Embedding)]
        self.embeds = bool(tables)
        most = max((table.num_embeddings for table in tables), default=0)
        self.lengths += [t.num_embeddings for t in tables if t.num_embeddings < most]

    def _hook(self, observe: Callable[..., None]) -> Callable[..., None]:
        def hook(layer: Any, args: Any, output: Any) -> None:
            self._observed += 1
            if self._observed > CALLS:  # a loop within one call repeats the same shapes
                return
            try:
                observe(self, layer, args[0] if args else output, output)
            except Exception:  # a layer with unusual arguments shows nothing
                pass

        return hook

    def _wrap(self, name: str, observe: Callable[[Any], None]) -> None:
        functional = self._torch.nn.functional
        original = getattr(functional, name, None)
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
        setattr(functional, name, wrapped)

    def _attention(self, query: Any) -> None:
        if query.dim() == 4:
            self.sequential = True
            self.samples.append((query.dim(), 0, int(query.shape[0])))

    def _softmax(self, scores: Any) -> None:
        if scores.dim() > 2 and scores.shape[-1] == scores.shape[-2]:
            self.sequential = True
            self.lengths.append(int(scores.shape[-1]))

    def stop(self) -> None:
        """Take the hooks out."""
        for layer in self._layers:
            layer._forward_hooks.pop(KEY, None)
        for name, original in self._functions:
            setattr(self._torch.nn.functional, name, original)
        self._layers, self._functions = [], []


def _observing(nn: Any, layer: Any) -> Callable[..., None] | None:
    """Return the observer for `layer`, or None."""
    if isinstance(layer, nn.modules.conv._ConvNd):
        return _convolution
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        return _norm
    if isinstance(layer, nn.RNNBase):
        return _recurrent
    if isinstance(layer, (nn.RNNCellBase, nn.Linear)):
        return _rows
    if isinstance(layer, nn.MultiheadAttention):
        return _attended
    if isinstance(layer, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        return _transformed
    if isinstance(layer, nn.EmbeddingBag):
        return _bagged
    return _embedded if isinstance(layer, nn.Embedding) else None


def _convolution(reported: LayerObserver, layer: Any, x: Any, output: Any) -> None:
    if x.dim() == len(layer.kernel_size) + 1:
        reported.alone.append(tuple(x.shape))
    else:
        reported.samples.append((x.dim(), 0, int(x.shape[0])))


def _norm(reported: LayerObserver, layer: Any, x: Any, output: Any) -> None:
    reported.samples.append((x.dim(), 0, int(x.shape[0])))


def _recurrent(reported: LayerObserver, layer: Any, x: Any, output: Any) -> None:
    reported.sequential = True
    sizes = getattr(x, "batch_sizes", None)
    if sizes is not None:  # a packed sequence: so many are in its first time step
        reported.samples.append((3, 0 if layer.batch_first else 1, int(sizes[0])))
    else:
        _along(reported, layer.batch_first, x)


def _attended(reported: LayerObserver, layer: Any, x: Any, output: Any) -> None:
    reported.sequential = True
    _along(reported, layer.batch_first, output[0])


def _transformed(reported: LayerObserver, layer: Any, x: Any, output: Any) -> None:
    reported.sequential = True
    _along(reported, layer.self_attn.batch_first, output)


def _along(reported: LayerObserver, batch_first: bool, x: Any) -> None:
    if x.dim() == 2:
        reported.alone.append(tuple(x.shape))
    else:
        axis = 0 if batch_first else 1
        reported.samples.append((x.dim(), axis, int(x.shape[axis])))


def _rows(reported: LayerObserver, layer: Any, x: Any, output: Any) -> None:
    if x.dim() == 1:
        reported.alone.append(tuple(x.shape))
    elif x.dim() == 2:
        reported.flat.append(int(x.shape[0]))


def _embedded(reported: LayerObserver, layer: Any, ids: Any, output: Any) -> None:
    reported.ids.append(tuple(ids.shape))


def _bagged(reported: LayerObserver, layer: Any, ids: Any, output: Any) -> None:
    """Layout of bags of ids with their offsets."""
    reported.samples.append((ids.dim() + 1, 0, int(output.shape[0])))
