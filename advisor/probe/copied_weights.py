"""Copies of the weights that the program keeps by hand, such as running averages.

Nothing of torch's knows what `ema = decay * ema + (1 - decay) * p` is. What it does is seen:
beside the network there are tensors of its weights' shapes, and they move. They are looked for
in the variables of the program's own functions that wait for the optimizer's step. At each
backward pass of the first updates one tensor of each copy is looked at, so that its moves in
an update are counted: a copy that moves with every batch of an accumulation follows the batch.
The same goes for what a network keeps beside its weights and moves as it is called: a codebook
of running averages, a queue of keys, the centre of a loss.
"""

from __future__ import annotations

import inspect
import sys
import types
import weakref
from collections import Counter, deque
from itertools import islice
from statistics import median
from typing import Any, Iterator

from . import call_sites
from .dataset_walk import globals_of
from .session import Session

# By judgement: copies show in the first updates, and later steps must cost nothing.
LOOKS = (1, 3)
"""Updates after which copies are looked for: some are made as they first move."""
MOST_UPDATES = 6
"""Updates in which moves are counted."""
MOST_PASSES = 256
"""Backward passes in which moves are counted.

Judgement: fewer end inside an update that accumulates many batches, more cost passes that show
nothing new."""
MOST_LEVELS = 5
"""Levels below a variable that a search goes through.

Judgement: fewer miss an average in a callback of a trainer, more search the data of the program."""
MOST_VALUES = 2000
"""Values that a search goes through.

Judgement: fewer end before the program's own objects are through, more delay an update."""
ASKING = {"locals", "vars", "dir", "eval", "exec"}
"""Names by which a function may ask for its own variables."""
OURS = 3
"""References to a frame's own dictionary: the frame's, our variable's and the count's.

Source: Python's documentation of `sys.getrefcount`, which counts its own argument, too. More would
empty a dictionary that the program holds, fewer would never empty one."""
COPIES = 4
"""Copies of the weights that are watched at once.

Judgement: fewer miss an average beside a target network and its like, more cost each pass a look.
"""
KEPT = 8
"""Tensors beside weights that are watched at once.

Judgement: fewer miss a queue of keys beside a codebook's buffers, more cost each pass a sum over a
tensor."""
NEAR = 0.5
"""Share of the weights by which a copy of them may differ when it is found. Judgement."""
LOOKED_AT = "Metric"
"""Part of the names of classes whose numbers are only looked at."""
ALIKE = 0.5
"""Share of the network's weights whose shapes a copy has: parts of it may be left out."""
NUMBERS = 64
"""Numbers of a tensor that stand for it: `p.data.mul_()` leaves no other trace.

Judgement: fewer may all be zeros or left alone by an edit, more cost each look a longer copy."""


class Copy:
    """One tensor of a copy: its place, and how it was at each backward pass."""

    def __init__(self, name: str, code: Any, steps: tuple[Any, ...]) -> None:
        self.name = name
        """As the program would write it: `ema.shadow`."""
        self._code = code
        """Code of the function in whose variables the copy lies."""
        self._steps = steps
        """Way from the variables to the tensor: by item or attribute, and the key."""
        self.is_near = False
        """It began near to the weights, as an average does and a gradient does not."""
        self._seen: list[tuple[int, Any, Any]] = []
        """Updates so far, the tensor's identity and version, and some of its numbers."""

    def look(self, updates: int) -> None:
        try:
            self._seen.append((updates, *self._state(self._found())))
        except Exception:  # it is not there, or something else is
            pass

    def _state(self, tensor: Any) -> tuple[Any, Any]:
        flat = tensor.detach().reshape(-1)
        numbers = flat[:: max(1, flat.numel() // NUMBERS)][:NUMBERS].clone()
        return (id(tensor), tensor._version), numbers

    def lies_near(self, weights: list[Any]) -> bool:
        """True if it differs from weights of its shape by less than half of what they are."""
        try:
            tensor = self._found()
            _, own = self._state(tensor)
            others = [self._state(w)[1] for w in weights if w.shape == tensor.shape]
        except Exception:  # it is not there any more
            return False
        return any(float((own - w).norm()) < NEAR * float(w.norm()) for w in others)

    def _found(self) -> Any:
        """What lies there now, maybe another tensor than before."""
        frame = call_sites.frame_of(self._code)
        value: Any = None if frame is None else variables_of(frame)
        for by_item, key in () if value is None else self._steps:
            value = value[key] if by_item else getattr(value, key)
        return value

    def moves(self) -> float | None:
        """Moves in an update; None unless one was seen whole."""
        counted: Counter[int] = Counter()
        for (update, before, old), (_, after, new) in zip(self._seen, self._seen[1:]):
            counted[update] += before != after or old.tolist() != new.tolist()
        counted.pop(self._seen[-1][0] if self._seen else 0, None)
        return float(median(counted.values())) if counted else None

    def distances(self) -> list[float]:
        """How far it moved in each update; nothing of what is no average of the weights."""
        if not self.is_near:
            return []
        first: dict[int, Any] = {}
        for update, _, numbers in self._seen:
            first.setdefault(update, numbers)
        states = list(first.values())
        return [float((new - old).norm()) for old, new in zip(states, states[1:])]


class Kept(Copy):
    """A tensor that a called network keeps beside its weights.

    Its sum tells a move of any part of it, and its version tells nothing: where replicas are
    kept alike it is written anew with each call. An attribute that is no buffer has to stay the
    same tensor: another one each time is the latest result, which many keep to look at.
    """

    def __init__(self, name: str, holder: Any, attribute: str, is_buffer: bool) -> None:
        super().__init__(name, None, ())
        self._holder, self._attribute = weakref.ref(holder), attribute
        self._is_buffer = is_buffer
        self._places: set[int] = set()

    def _found(self) -> Any:
        tensor = getattr(self._holder(), self._attribute)
        self._places.add(id(tensor))
        return tensor

    def _state(self, tensor: Any) -> tuple[Any, Any]:
        return None, tensor.detach().double().sum().reshape(1)

    def moves(self) -> float | None:
        """Moves in an update; None where the tensor was replaced."""
        replaced = not self._is_buffer and len(self._places) > 1
        return None if replaced else super().moves()


def look(session: Session) -> None:
    """Look at each copy as a backward pass begins, in the first MOST_UPDATES updates."""
    if session.capture is not None:
        return
    session.looks += 1
    if session.looks <= MOST_PASSES:
        with session.unseen():
            for copy in session.copies:
                copy.look(session.updates)


def find(session: Session, optimizer: Any) -> None:
    """Find copies of the weights that `optimizer` moves; called at the updates of LOOKS."""
    if session.capture is not None:
        return
    if session.updates == LOOKS[0]:
        session.copies += islice(_kept(session), KEPT)
    given = [weight for group in optimizer.param_groups for weight in group["params"]]
    weights = [each for each in given if each.requires_grad]  # a frozen one may be a copy
    names = {copy.name for copy in session.copies}
    most = len(session.copies) + COPIES
    for frame in call_sites.own_frames():
        for name, steps in _copies(session.torch, variables_of(frame), weights):
            if name not in names:
                names.add(name)
                copy = Copy(name, frame.f_code, steps)
                copy.is_near = copy.lies_near(weights)
                session.copies.append(copy)
            if len(session.copies) == most:
                return


def is_torchs_norm(part: Any) -> bool:
    """Return True for torch's BatchNorm: in training it is known to normalise by its batch."""
    return any(
        base.__name__ == "_BatchNorm" and base.__module__.startswith("torch.")
        for base in type(part).__mro__
    )


def _kept(session: Session) -> Iterator[Kept]:
    """Floating tensors of called networks that are no weights and no statistics of torch's."""
    seen: set[int] = set()
    for entry in session.modules:
        network = entry.module()
        named = network.named_modules() if hasattr(network, "named_modules") else ()
        # What may be frozen statistics comes last, so that it leaves room for others.
        for path, part in sorted(
            named, key=lambda each: "BatchNorm" in type(each[1]).__name__
        ):
            kinds = "".join(base.__name__ for base in type(part).__mro__)
            if id(part) in seen or is_torchs_norm(part) or LOOKED_AT in kinds:
                continue
            seen.add(id(part))
            for name, tensor in (*part._buffers.items(), *vars(part).items()):
                if isinstance(tensor, session.torch.Tensor) and tensor.is_floating_point():
                    place = ".".join(filter(None, (type(network).__name__, path, name)))
                    yield Kept(place, part, name, name in part._buffers)


def content(session: Session) -> tuple[dict[str, float], dict[str, float]]:
    """Moves in an update of each copy, and of each tensor that is kept beside weights."""
    found: tuple[dict[str, float], dict[str, float]] = ({}, {})
    for copy in session.copies:
        moves = copy.moves()
        if moves is not None:
            found[isinstance(copy, Kept)][copy.name] = moves
    return found


def variables_of(frame: Any) -> dict[str, Any]:
    """Variables of a running function, or of a module.

    Before Python 3.13 a function's are copied into a dictionary that its frame keeps: tensors
    of a batch would live on in it, and who called `locals()` would find it changed. So it is
    emptied again, and functions that ask for it are left alone.
    """
    code = frame.f_code
    if not code.co_flags & inspect.CO_NEWLOCALS:
        variables: dict[str, Any] = frame.f_locals
        return variables
    if ASKING & set(globals_of(code)):  # `network.eval()` asks for nothing
        return {}
    kept = frame.f_locals
    variables = dict(kept)
    if isinstance(kept, dict) and sys.getrefcount(kept) <= OURS:
        kept.clear()
    return variables


def _copies(torch: Any, variables: Any, weights: list[Any]) -> Iterator[tuple[str, Any]]:
    """Name of each copy below the variables, and the way to its largest tensor."""
    ids = {id(weight) for weight in weights}
    ids |= {id(weight.grad) for weight in weights if weight.grad is not None}
    shapes = Counter(tuple(weight.shape) for weight in weights)
    seen: set[int] = set()
    queue = deque(
        (str(name), ((True, name),), value)
        for name, value in variables.items()
        if not str(name).startswith("__")
    )
    left = MOST_VALUES
    while queue and left:
        left -= 1
        name, way, value = queue.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        parts = list(_parts(torch, value))
        tensors = [part for part in parts if isinstance(part[2], torch.Tensor)]
        if not {id(tensor) for _, _, tensor in tensors} & ids:
            alike = shapes & Counter(tuple(tensor.shape) for _, _, tensor in tensors)
            if sum(alike.values()) >= ALIKE * len(weights):
                copied = [part for part in tensors if tuple(part[2].shape) in alike]
                _, step, _ = max(copied, key=lambda part: part[2].numel())
                yield name, way + step
        if len(way) <= MOST_LEVELS:
            queue.extend(
                (f"{name}{suffix}", way + step, part)
                for suffix, step, part in parts
                if not isinstance(part, torch.Tensor)
            )


def _parts(torch: Any, value: Any) -> Iterator[tuple[str, Any, Any]]:
    """Parts of a value: how their name goes on, the steps to them, and themselves."""
    if isinstance(value, torch.nn.Module):
        for name, tensor in value.named_parameters():
            yield f".{name}", tuple((False, part) for part in name.split(".")), tensor
        for name, part in value.named_children():  # a target network may lie in the network
            yield f".{name}", ((False, name),), part
    if isinstance(value, dict):
        for key, part in islice(list(value.items()), MOST_VALUES):
            yield f"[{key!r}]", ((True, key),), part
    elif isinstance(value, (list, tuple)):
        for at, part in enumerate(value[:MOST_VALUES]):
            yield f"[{at}]", ((True, at),), part
    elif _is_object(torch, value):
        for name, part in list(vars(value).items()):
            if not name.startswith("_"):
                yield f".{name}", ((False, name),), part


def _is_object(torch: Any, value: Any) -> bool:
    """Return True for what may hold a copy in its attributes; torch's own objects hold none."""
    if isinstance(value, (type, types.ModuleType, types.FunctionType)):
        return False
    of_torch = type(value).__module__.partition(".")[0] == torch.__name__
    network = isinstance(value, torch.nn.Module)
    return isinstance(getattr(value, "__dict__", None), dict) and (network or not of_torch)
