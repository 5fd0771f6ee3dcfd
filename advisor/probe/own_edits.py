"""Edits that the program itself makes of its weights and gradients, counted in an update.

Gradients that are clipped, or get noise, with each batch of an accumulation are edited as often as
there are batches: with larger batches and less accumulation they would be edited less often, and
the same samples would train another network. Nothing of torch's tells such edits, so one looks:
from where autograd leaves a gradient to where it, or the optimizer, takes it up again, nobody but
the program can have changed it. Two weights stand for all, in the first updates only. Where others
write into gradients too, as DDP does, or where a look may be traced or costs, nobody watches.
"""

from __future__ import annotations

import math
from collections import Counter
from statistics import median
from typing import Any, Callable

from . import call_sites
from .module_facts import any_compiled
from .session import Session

# By judgement: it shows in the first updates, and later steps must cost nothing.
MOST_UPDATES = 5
"""Updates in which edits are counted."""
MOST_LOOKS = 512
"""Looks at one weight in which edits are counted."""
NUMBERS = 16
"""Numbers of a tensor that stand for it: `p.grad.data.clamp_()` leaves no other trace.

Judgement: fewer may all lie below a bound that clips others, more cost each look a longer copy."""
WRITERS = {"DistributedDataParallel", "FullyShardedDataParallel", "DeepSpeedEngine"}
"""Wrappers that write averaged gradients themselves."""


class Watched:
    """One weight, how it and its gradient were left, and in which updates somebody changed them."""

    def __init__(self, session: Session, optimizer: Any, weight: Any) -> None:
        self._session = session
        self._weight = weight
        self.number = id(optimizer)
        self._left: dict[str, Any] = {"weights": _seen(weight)}
        self._changes: list[tuple[str, int, Any, Any]] = []
        """Of each look: what was looked at, the updates so far, how it was left, and found."""
        self._updates = self._looks = 0
        """Steps of its own optimizer since it is watched, and looks."""
        self._stepping = False
        """Its optimizer steps: what moves then is no edit, however often a closure runs."""
        self._passes: Counter[int] = Counter()
        """Backward passes of each update in which hooks of the program got the gradient."""
        self.lengths: list[Any] = []
        """Length of the weight's gradient at each update, as the optimizer takes it."""
        self.taken: list[Any] = []
        """Some numbers of these gradients."""
        self._handles = [
            weight.register_hook(self._before_backward),
            weight.register_post_accumulate_grad_hook(self._after_backward),
        ]

    def _before_backward(self, gradient: Any) -> None:
        """Autograd is about to add to the gradient; returns None, so that it stays what it is."""
        self.carefully(self.look)
        self.carefully(self._count_hooked)

    def _after_backward(self, weight: Any) -> None:
        self.carefully(self._leave_gradient)

    def carefully(self, call: Callable[[], None]) -> None:
        """Call it, and watch no more where that fails: it is no fault that is worth a word."""
        try:
            if self._handles and self._session.capture is None:
                with self._session.unseen():
                    call()
        except Exception:
            self.stop()

    def _count_hooked(self) -> None:
        """Count a gradient that the program's own hooks may change before it is added."""
        hooks = getattr(self._weight, "_backward_hooks", None) or {}
        if not self._stepping and any(map(_is_of_program, hooks.values())):
            self._passes[self._updates] += 1

    def _leave_gradient(self) -> None:
        if not self._stepping and is_plain(self._session.torch, self._weight.grad):
            self._left["gradients"] = _seen(self._weight.grad)

    def look(self) -> None:
        """Compare both with how they were left."""
        if self._stepping:
            return
        self._looks += 1
        for name, tensor in (("gradients", self._weight.grad), ("weights", self._weight)):
            left = self._left.pop(name, None)
            if left is not None and is_plain(self._session.torch, tensor):
                found = _seen(tensor)
                self._changes.append((name, self._updates, left, found))
                self._left[name] = found
        if self._looks >= MOST_LOOKS:
            self.stop()  # this update is not seen whole

    def begin_step(self) -> None:
        self.look()
        if not self._session.in_closure:
            self._take()
        self._stepping, self._left = True, {}

    def _take(self) -> None:
        """Keep the gradient that the optimizer takes."""
        if is_plain(self._session.torch, self._weight.grad):
            self.lengths.append(self._weight.grad.detach().norm())
            self.taken.append(_seen(self._weight.grad)[1])

    def end_step(self) -> None:
        """Its optimizer has stepped: the weight is left as it is now."""
        if self._session.in_closure:
            self._take()
        self._updates, self._stepping = self._updates + 1, False
        if self._updates >= MOST_UPDATES:
            self.stop()
        else:
            self._left = {"weights": _seen(self._weight)}

    def other_step(self) -> None:
        """Another optimizer has stepped, which may hold the weight, too."""
        self._left["weights"] = _seen(self._weight)

    def stop(self) -> None:
        """Look no more, and hold nothing of the program's."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._left, self._weight = [], {}, None
        if self in self._session.watched:
            self._session.watched.remove(self)

    def edits(self) -> dict[str, float]:
        """Edits in an update, by what is edited; only of updates that were seen whole."""
        counted: dict[str, Counter[int]] = {}
        for name, update, left, found in self._changes:
            if update < self._updates:
                counted.setdefault(name, Counter())[update] += _differ(left, found)
        whole = [many for update, many in self._passes.items() if update < self._updates]
        edits = {name: float(median(each.values())) for name, each in counted.items()}
        if whole:
            edits["gradients"] = max(float(median(whole)), edits.get("gradients", 0.0))
        return edits


def _is_of_program(hook: Any) -> bool:
    """Return True for a function that the program itself wrote."""
    code = getattr(getattr(hook, "__func__", hook), "__code__", None)
    return code is not None and not call_sites.is_foreign(code.co_filename)


def is_plain(torch: Any, tensor: Any) -> bool:
    """Return True for a tensor whose numbers lie here: not sparse, distributed or without data."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and tensor.device.type != "meta"
    )


def _seen(tensor: Any) -> Any:
    """Version of a tensor, and some of its numbers; its identity tells nothing, as wrappers go."""
    flat = tensor.detach().reshape(-1)
    return tensor._version, flat[:: max(1, flat.numel() // NUMBERS)][:NUMBERS].clone()


def _differ(left: Any, found: Any) -> bool:
    # as text, in which a NaN equals itself
    return bool(left[0] != found[0] or str(left[1].tolist()) != str(found[1].tolist()))


def stepping(session: Session, optimizer: Any) -> None:
    """An optimizer is about to take the gradients.

    A closure makes them, or the last of them, inside of the step: Lightning passes one each time.
    They are then as the step leaves them.
    """
    if not session.in_closure:
        _count_parts(session, optimizer)
    for watched in list(session.watched):
        if watched.number == id(optimizer):
            watched.carefully(watched.begin_step)


def _count_parts(session: Session, optimizer: Any) -> None:
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    parts = session.gradient_parts.setdefault(id(optimizer), [])
    parts.append(sum(weight.grad is not None for weight in weights))


def stepped(session: Session, optimizer: Any) -> None:
    """An optimizer has stepped; after the first step of all, begin to watch."""
    if session.watched and session.in_closure:
        _count_parts(session, optimizer)
    for watched in list(session.watched):
        own = watched.number == id(optimizer)
        watched.carefully(watched.end_step if own else watched.other_step)
        if session.capture is not None:
            watched.stop()
    if session.updates == 1 and session.capture is None:
        session.attempt(_watch, session, optimizer)


def _watch(session: Session, optimizer: Any) -> None:
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    able = [
        w for w in weights if is_plain(session.torch, w) and w.is_leaf and w.requires_grad
    ]
    if not able or not hasattr(able[0], "register_post_accumulate_grad_hook"):
        return
    for called in [entry.module() for entry in session.modules]:
        writes = WRITERS & {base.__name__ for base in type(called).__mro__}
        if writes or (hasattr(called, "modules") and any_compiled(called)):
            return
    for weight in {id(each): each for each in (able[0], able[-1])}.values():
        watched = Watched(session, optimizer, weight)
        session.watched.append(watched)
        session.edited.append(watched)


def gradients(session: Session) -> dict[str, Any]:
    """Weights with a gradient in an update, and a watched weight's gradient: length and numbers."""
    parts = max(session.gradient_parts.values(), key=len, default=[])
    lengths: list[Any] = next((watched.lengths for watched in session.edited), [])
    length = float(median(map(float, lengths))) if lengths else math.nan
    taken = [
        [number for watched in session.edited for number in watched.taken[at].tolist()]
        for at in range(min((len(watched.taken) for watched in session.edited), default=0))
    ]
    return {
        "gradients": taken if all(math.isfinite(n) for each in taken for n in each) else [],
        "parts": float(median(parts)) if parts else None,
        "gradient": length if math.isfinite(length) else None,
    }


def content(session: Session) -> dict[str, float]:
    """Most edits in an update of a watched weight, and of its gradient."""
    found: dict[str, float] = {}
    for watched in session.edited:
        try:
            edits = watched.edits()
        except Exception:  # a card that is gone, say: nothing is known of it then
            continue
        for name, many in edits.items():
            found[name] = max(many, found.get(name, 0.0))
    return found
