"""Facts of called modules: items, shapes, flags and sample numbers."""

from __future__ import annotations

import os
import sys
import weakref
from typing import Any, Callable

from . import batches, call_sites
from .clocks import clock
from .recorder import LENGTH, ROW
from .session import Session

LOOKS = (1, 2, 8, 64, 256)
"""Calls looked at closely: settings may change after the first."""
UNLIKE = 4
"""Unlike numbers by which two tensors are known to be one.

Judgement: of fewer, two tensors of zeros or of classes agree by chance. More miss short hidden
states."""
OUTPUTS_KEPT = 3
"""First calls of a network whose outputs are kept, to compare them with another run's.

Judgement: the first is compared, and two more show whether a batch gets what the one before gave.
More cost calls a copy."""
SAMPLES = 64
"""Numbers of an output that are kept.

Judgement: fewer may miss the places where a result differs, more cost a copy from the card and a
longer record."""
ROWS = 64
"""Rows of results that are kept: a batch's later rows may differ where its first does not.

Judgement: fewer hide a fault beyond the first batch, more cost calls a copy from the card."""
ROW_SAMPLES = 8
"""Numbers of each row.

Judgement: fewer may all lie in what rows share, more lengthen the record by each row."""


class Module:
    """Module called from outside any other."""

    def __init__(self, module: Any, index: int, parameters: int, added: int) -> None:
        self.module = weakref.ref(module)
        self.index = index
        self.name = type(module).__name__
        self.parameters = parameters
        self.added_parameters = added
        """Parameters that no module called before it has: layers called in turn make one model."""
        self.site = call_sites.call_site()
        """`file.py:line` of its first call."""
        self.calls = 0
        # (args, kwargs) are no batch themselves
        self.counter = batches.ItemCount(least_depth=2)
        self.shapes: list[str] = []
        """Shapes of tensors in its first call, without batch dimension."""
        self.same_shape = False
        """The output has the shape of the input, as a denoiser's."""
        self.flags: dict[str, Any] = {}
        self.observer: batches.LayerObserver | None = None
        """Of the layers, during a call looked at."""
        self.numbered = True
        """Its calls' arguments have numbers, as far as known."""
        self.firsts: list[tuple[list[Any], list[Any], int]] = []
        """Of the first calls: numbers that went in, what came out, and the batches so far."""
        self.rows: list[tuple[int, Any]] = []
        """Of the first calls: numbers in a row of what came out, and a few of each row."""
        self.rows_left = ROWS
        self.ids: Any = None
        """Path to the token ids, where the output has a part for each."""
        self.tokens = self.token_items = 0.0
        """Tokens and items of calls so far, where there are ids."""


DESCRIBED = (
    "name", "site", "parameters", "added_parameters", "same_shape", "flags", "shapes", "tokens",
    "token_items",
)  # fmt: skip


def register(session: Session, module: Any) -> Module:
    """Return a new module's entry, maybe that of an alike one now gone.

    A program may make its modules anew for each step. One of the same class and size as one that
    is gone takes over its entry, so that the calls of all of them are those of one network.
    """
    own_parameters = parameters(module)
    name = type(module).__name__
    size = sum(parameter.numel() for parameter in own_parameters)
    gone = (entry for entry in session.modules if entry.module() is None)
    entry = next((e for e in gone if (e.name, e.parameters) == (name, size)), None)
    if entry is None:
        entry = Module(
            module, len(session.modules), size, _first_seen(session, own_parameters)
        )
        session.modules.append(entry)
        session.heavy_modules += bool(size)
        for act in session.on_module if size else ():
            session.attempt(act, module)
    entry.module = weakref.ref(module)
    session.modules_by_id[id(module)] = entry
    describe(session, entry)
    return entry


def _first_seen(session: Session, held: list[Any]) -> int:
    """Numbers in those of the parameters that no registered module had."""
    fresh = 0
    for parameter in held:
        registered = session.parameters_by_id.get(id(parameter))
        if registered is None or registered() is not parameter:
            session.parameters_by_id[id(parameter)] = weakref.ref(parameter)
            fresh += parameter.numel()
    return fresh


def parameters(module: Any) -> list[Any]:
    """Module's parameters that have a shape."""
    named = module.named_parameters() if hasattr(module, "_modules") else ()
    return batches.known_parameters(dict(named))


def describe(session: Session, entry: Module, at_end: bool = False) -> None:
    content = {name: getattr(entry, name) for name in DESCRIBED}
    if at_end:
        content["inputs"] = [_read(went_in) for went_in, *_ in entry.firsts]
        content["outputs"] = [_read(came_out) for _, came_out, _ in entry.firsts]
        content["carries"] = _carries(entry.firsts)
        content["rows"] = [
            [float(size), *row]
            for size, rows in entry.rows
            for row in rows.to("cpu").tolist()
        ]
    session.recorder.add(("module", entry.index, content))


def _batches_so_far(session: Session) -> int:
    kept = [pass_ for facts in session.loaders for pass_ in facts["work"].passes]
    return sum(pass_.batches for pass_ in kept)


def _carries(firsts: list[tuple[list[Any], list[Any], int]]) -> bool | None:
    """True if a batch's call gets what that of the batch before gave, as a hidden state is."""
    pairs = [(a, b) for a, b in zip(firsts, firsts[1:]) if a[2] != b[2]]
    if not pairs:
        return None
    return any(
        _read([given]) == _read([one]) and len(set(_read([one]))) >= UNLIKE
        for (_, came_out, _), (went_in, *_) in pairs
        for one in came_out
        for given in went_in
    )


def look(session: Session, entry: Module, module: Any) -> None:
    """Look at a call that begins: flags in force, and layers as they run."""
    largest = max(parameters(module), key=lambda parameter: parameter.numel())
    entry.flags = flags(session, module, largest)
    if not entry.flags.get("compiled"):  # which no hook must enter
        entry.observer = batches.LayerObserver(session.torch, module)


def failed(session: Session, entry: Module, inputs: Any, problem: BaseException) -> None:
    """Note a failed call, and observe the next one."""
    if entry.observer is not None:
        entry.observer.stop()
        entry.observer, entry.calls = None, 0
    session.record_exception(problem, "forward", entry.counter.count(inputs))


def items_of(session: Session, entry: Module, inputs: Any, output: Any) -> float:
    """Items of this call; observe the first ones."""
    if entry.calls <= OUTPUTS_KEPT and entry.parameters and session.capture is None:
        tensors = [t for t in batches.tensors_in(inputs, 4) if t.numel()]
        came_out = batches.tensors_in(output, 4)
        given, got = list(map(samples, tensors)), list(map(samples, came_out))
        entry.firsts.append((given, got, _batches_so_far(session)))
    if entry.calls in LOOKS and entry.parameters:
        session.attempt(_observed, session, entry, inputs, output)
    with session.unseen():
        items = entry.counter.count(inputs)
    if entry.rows_left > 0 and entry.parameters and not session.optimizers_built:
        session.attempt(_keep_rows, session, entry, output, int(items))
    if entry.ids is not None:
        try:
            entry.tokens += batches.at(inputs, entry.ids).numel()
            entry.token_items += items
        except Exception:  # inputs of another form
            pass
    return items


def _keep_rows(session: Session, entry: Module, output: Any, items: int) -> None:
    """Keep a few numbers of each row of a result that has one for each item, without a wait."""
    result = next(iter(batches.tensors_in(output, 1)), None)
    if (
        session.capture is not None
        or result is None
        or not result.dim()
        or len(result) != items
        or not result.is_floating_point()
        or result.layout is not session.torch.strided
    ):
        entry.rows_left = 0
        return
    flat = result.detach()[: entry.rows_left].reshape(min(items, entry.rows_left), -1)
    step = max(1, flat.shape[1] // ROW_SAMPLES)
    entry.rows.append((flat.shape[1], flat[:, ::step][:, :ROW_SAMPLES].float().clone()))
    entry.rows_left -= len(flat)


def _observed(session: Session, entry: Module, inputs: Any, output: Any) -> None:
    """Keep what the layers showed in this call."""
    observer, entry.observer = entry.observer, None
    if observer is not None:
        observer.stop()
        if observer.dtypes:
            dtypes = observer.dtypes
            entry.flags["compute_dtype"] = max(dtypes, key=dtypes.__getitem__)
        if "tf32" in entry.flags and observer.products:
            entry.flags["tf32"] = all_in_tf32(
                session.torch, observer.products, entry.flags["device"]
            )
        if entry.calls == 1:
            observer.settle(entry.counter, inputs)
        fed = session.fed
        if fed is not None and observer.size is not None:
            fed["counter"].believe(observer.size, *fed["latest"])
    elif entry.calls == 1 and entry.flags.get("compiled"):
        batches.settle_recurrent(session.torch.nn, entry.module(), entry.counter, inputs)
    if entry.calls == 1:
        _note_shapes(entry, inputs, output)
        entry.ids = _token_ids(inputs, output)
    describe(session, entry)


def _token_ids(inputs: Any, output: Any) -> Any:
    """Path to rows of whole numbers, where the output has a part for each."""
    outputs = [tuple(tensor.shape) for tensor in batches.tensors_in(output, 2)]
    for path, value in batches.walk(inputs):
        if batches.is_tensor(value) and len(value.shape) == 2 and "int" in str(value.dtype):
            shape = tuple(value.shape)
            wide = [output for output in outputs if len(output) > 1]
            if any(output[:2] == shape or output[0] == value.numel() for output in wide):
                return path
    return None


def _note_shapes(entry: Module, inputs: Any, output: Any) -> None:
    shapes = [tuple(map(int, tensor.shape)) for tensor in batches.tensors_in(inputs)]
    items = entry.counter.count(inputs)
    for shape in shapes:
        axis = 1 if len(shape) > 1 and shape[0] != items == shape[1] else 0
        rest = shape[:axis] + shape[axis + 1 :]
        entry.shapes.append("x".join(map(str, rest)) or "scalar")
    for result in (tuple(tensor.shape) for tensor in batches.tensors_in(output, 1)):
        entry.same_shape = len(result) > 1 and any(
            len(shape) == len(result) and shape[:1] + shape[2:] == result[:1] + result[2:]
            for shape in shapes
        )


def flags(session: Session, module: Any, largest: Any) -> dict[str, Any]:
    """Dtypes, layout, compilation and torch switches in force."""
    torch, kind = session.torch, largest.device.type
    reads: dict[str, Callable[[], Any]] = {
        "device": lambda: str(largest.device),
        "model_dtype": lambda: _name(largest.dtype),
        "autocast_dtype": lambda: _autocast(torch, kind),
        "compiled": lambda: any_compiled(module),
        "channels_last": lambda: _channels_last(torch, module),
        "threads": lambda: int(torch.get_num_threads()),
    }
    if kind == "cuda":
        products = batches.products_of(torch.nn, module)
        reads["tf32"] = lambda: all_in_tf32(torch, products, largest.device)
        # convolutions
        if any(p.dim() > 2 and max(p.shape[2:]) > 1 for p in parameters(module)):
            reads["cudnn_benchmark"] = lambda: torch.backends.cudnn.benchmark
    values: dict[str, Any] = {}
    for name, read in reads.items():
        try:
            values[name] = read()
        except Exception as problem:
            session.note(f"{name} could not be read: {type(problem).__name__}: {problem}")
    return values


NOTEWORTHY = 0.05
"""Share of a model's products from which their precision is a fact of the model.

Judgement: a small layer in another precision moves no rate."""
TENSOR_CORES = 8
"""Compute capability (major) from which cards know TF32."""


def in_tf32(torch: Any) -> dict[str, bool]:
    """Kinds of float32 products, and whether torch lets a card compute them in TF32.

    Each has a switch of its own, and they differ by default: convolutions and recurrent
    layers are on, matrix products are off. torch 2.9 has a second way to set and ask for
    each; to ask by the older one raises once the newer one was used.
    """
    if os.environ.get("NVIDIA_TF32_OVERRIDE") == "0":  # stands above all of torch's
        return dict.fromkeys(("matrix", "convolution", "recurrent"), False)
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    if hasattr(matmul, "fp32_precision"):
        owners = {"matrix": matmul, "convolution": cudnn.conv, "recurrent": cudnn.rnn}
        return {kind: owner.fp32_precision == "tf32" for kind, owner in owners.items()}
    convolutions = bool(cudnn.allow_tf32)
    return {
        "matrix": bool(matmul.allow_tf32),
        "convolution": convolutions,
        "recurrent": convolutions,
    }


def all_in_tf32(torch: Any, products: dict[str, float], device: Any) -> bool | None:
    """Return True if the card may compute all products worth a word in TF32.

    None on a card of AMD: its capability says nothing of TF32, and torch's switch is not its own.

    `products`: their amount by kind; what is a twentieth of them, like the last layer of a
    network of convolutions, decides nothing.
    """
    if getattr(torch.version, "hip", None):
        return None
    if torch.cuda.get_device_properties(device).major < TENSOR_CORES:
        return False
    allowed, whole = in_tf32(torch), sum(products.values())
    kinds = [kind for kind, part in products.items() if part >= NOTEWORTHY * whole]
    return all(allowed[kind] for kind in kinds or ("matrix",))


def _channels_last(torch: Any, module: Any) -> bool | None:
    """Return True for channels-last, None without convolutions."""
    planes = (p for p in parameters(module) if p.dim() == 4)
    weights = [p for p in planes if max(p.shape[2:]) > 1 and p.shape[1] > 1]
    last = torch.channels_last
    return all(p.is_contiguous(memory_format=last) for p in weights) if weights else None


def any_compiled(module: Any) -> bool:
    return "torch._dynamo" in sys.modules and any(
        getattr(part, "_compiled_call_impl", None) is not None
        or type(part).__name__ == "OptimizedModule"
        or hasattr(vars(part).get("forward"), "_torchdynamo_orig_callable")
        for part in module.modules()
    )


def _autocast(torch: Any, kind: str) -> str | None:
    try:
        return (
            _name(torch.get_autocast_dtype(kind))
            if torch.is_autocast_enabled(kind)
            else None
        )
    except TypeError:  # torch before 2.4 knew CUDA and CPU by name
        if kind == "cuda":
            return (
                _name(torch.get_autocast_gpu_dtype())
                if torch.is_autocast_enabled()
                else None
            )
        enabled = torch.is_autocast_cpu_enabled()
        return _name(torch.get_autocast_cpu_dtype()) if enabled else None


def _name(dtype: Any) -> str:
    return str(dtype).rsplit(".", 1)[-1]


def record_numbers(session: Session, entry: Module, inputs: Any, items: float) -> None:
    """Record what tells one call of an item from the next, without a wait.

    Numbers among the arguments, such as a timestep or a position, and the lengths of tensors,
    such as a prompt's or its mask's. Where no loader feeds the program, nothing else does.
    """
    if not entry.numbered:  # only what every call has distinguishes them
        return
    args, kwargs = inputs
    beside = 1 - entry.counter.axis  # the batch lies along the other one
    numbers: dict[str, Any] = {}
    given = {**dict(enumerate(args)), **kwargs}
    if len(given) == 1 and isinstance(next(iter(given.values())), dict):
        (given,) = given.values()  # a batch by names, as tokenizers make it
    for name, value in given.items():
        number = _first_number(value, items)
        if number is not None:
            numbers[str(name)] = number
        row = _first_row(value)
        if row is not None:
            numbers[f"{name}{ROW}"] = row
        shape = getattr(value, "shape", ())
        if len(shape) > 1 and beside >= 0:
            numbers[f"{name}{LENGTH}"] = int(shape[beside])
    entry.numbered = bool(numbers)
    event = ("numbers", entry.index, numbers)
    if session.device is None or not any(map(batches.is_tensor, numbers.values())):
        session.recorder.add(read_numbers(event))
    else:
        session.device.queue(clock(), numbers=event)


def record_rows(session: Session, inputs: Any, items: float, end: float) -> None:
    """Record a number for each row of a call: whether it comes again tells what it is for."""
    args, kwargs = inputs
    rows = batches.rows([*args, kwargs], items)
    session.rows_left -= len(rows)
    if rows:
        session.recorder.add(("rows", end, rows))


def _first_number(value: Any, items: float) -> Any:
    """Number, or a tensor's first one, whose copy may be under way; else None."""
    if isinstance(value, (int, float)):
        return None if isinstance(value, bool) else value
    if not batches.is_tensor(value) or not hasattr(value, "detach"):
        return None
    size = value.numel()
    if size != 1 and (size != items or len(value.shape) > 2):
        return None
    first = value.detach().reshape(-1)[:1]
    return first.to("cpu", non_blocking=True) if first.is_cuda else first.clone()


def _first_row(value: Any) -> int | None:
    """Row at which a slice begins in the array it is a part of; None if it is no part."""
    try:
        rows, numbers = len(value), value.numel()
        whole = value.untyped_storage().nbytes() // value.element_size()
        if not rows or whole <= numbers or numbers // rows != value.stride(0):
            return None
        return int(value.storage_offset() // value.stride(0))
    except Exception:  # no tensor, or one without a storage
        return None


def read_numbers(event: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the event with its tensors read."""
    kind, index, numbers = event
    plain = {
        n: float(v.tolist()[0]) if hasattr(v, "tolist") else v for n, v in numbers.items()
    }
    return kind, index, plain


def samples(tensor: Any) -> Any:
    """Copy a few numbers of the first item, without a wait."""
    functorch: Any = getattr(sys.modules["torch"]._C, "_functorch", None)
    wrapped = getattr(functorch, "is_functorch_wrapped_tensor", None)
    first = tensor.detach()
    while wrapped is not None and wrapped(first):
        first = functorch.get_unwrapped(first)
    first = first[0] if first.dim() > 1 else first
    flat = first.flatten() if first.is_contiguous() else first.reshape(-1)
    return flat[:: max(1, flat.numel() // SAMPLES)][:SAMPLES].clone()


def _read(tensors: list[Any]) -> list[float]:
    plain = [tensor for tensor in tensors if not tensor.is_complex()]
    return [float(value) for tensor in plain for value in tensor.to("cpu").tolist()]
