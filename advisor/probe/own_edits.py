"""Edits that the program itself makes of its weights and gradients, counted in an update.

Gradients that are clipped, or get noise, with each batch of an accumulation are edited as often as
there are batches: with larger batches and less accumulation they would be edited less often, and
the same samples would train another network. Nothing of torch's tells such edits, so one looks:
from where autograd leaves a gradient to where it, or the optimizer, takes it up again, nobody but
the program can have changed it. Two weights stand for all, in the first updates only.
"""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import Any

from .module_facts import any_compiled
from .session import Session

# By judgement: it shows in the first updates, and later steps must cost nothing.
UPDATES, LOOKS = 5, 512
"""Updates, and looks at one weight, in which edits are counted."""
NUMBERS = 16
"""Numbers of a tensor that stand for it: `p.grad.data.clamp_()` leaves no other trace."""


class Watched:
    """One weight, how it and its gradient were left, and in which updates somebody changed them."""

    def __init__(self, session: Session, weight: Any) -> None:
        self._session = session
        self._weight = weight
        self._left: dict[str, Any] = {"weights": _seen(weight)}
        self._changes: list[tuple[str, int, Any, Any]] = []
        """What, the updates before, and how it was left and found."""
        self._handles = [
            weight.register_hook(self._before_backward),
            weight.register_post_accumulate_grad_hook(self._after_backward),
        ]

    def _before_backward(self, gradient: Any) -> None:
        """Autograd is about to add to the gradient; returns None, so that it stays what it is."""
        self._session.attempt(self.look)

    def _after_backward(self, weight: Any) -> None:
        self._session.attempt(self._leave_gradient)

    def _leave_gradient(self) -> None:
        if self._session.capture is None and self._weight.grad is not None:
            with self._session.unseen():
                self._left["gradients"] = _seen(self._weight.grad)

    def look(self) -> None:
        """Compare both with how they were left."""
        if self._session.capture is not None or len(self._changes) > LOOKS:
            return
        with self._session.unseen():
            for name, tensor in (
                ("gradients", self._weight.grad),
                ("weights", self._weight),
            ):
                left = self._left.pop(name, None)
                if left is not None and tensor is not None:
                    found = _seen(tensor)
                    self._changes.append((name, self._session.updates, left, found))
                    self._left[name] = found

    def updated(self) -> None:
        """The optimizer has stepped: what it changed is no edit."""
        with self._session.unseen():
            self._left = {"weights": _seen(self._weight)}

    def stop(self) -> None:
        """Look no more; what was left is not taken up."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._left = [], {}

    def edits(self) -> dict[str, float]:
        """Edits in an update, by what is edited; only of updates that were seen whole."""
        whole = range(1, self._session.updates)
        counted: dict[str, Counter[int]] = {}
        for name, update, left, found in self._changes:
            if update in whole:
                counted.setdefault(name, Counter())[update] += _differ(left, found)
        return {name: float(median(each.values())) for name, each in counted.items()}


def _seen(tensor: Any) -> Any:
    """Version of a tensor, and some of its numbers; its identity tells nothing, as wrappers go."""
    flat = tensor.detach().reshape(-1)
    return tensor._version, flat[:: max(1, flat.numel() // NUMBERS)][:NUMBERS].clone()


def _differ(left: Any, found: Any) -> bool:
    return bool(left[0] != found[0] or left[1].tolist() != found[1].tolist())


def stepping(session: Session) -> None:
    """The optimizer is about to take the gradients."""
    for watched in session.edited:
        session.attempt(watched.look)


def stepped(session: Session, optimizer: Any) -> None:
    """The optimizer has stepped: begin to watch after the first time, and end after the last."""
    for watched in session.edited:
        session.attempt(watched.updated if session.updates <= UPDATES else watched.stop)
    if session.updates == 1 and session.capture is None:
        session.attempt(_watch, session, optimizer)


def _watch(session: Session, optimizer: Any) -> None:
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    able = [each for each in weights if each.is_leaf and each.requires_grad]
    if not able or not hasattr(able[0], "register_post_accumulate_grad_hook"):
        return
    called = [entry.module() for entry in session.modules]
    if any(hasattr(each, "modules") and any_compiled(each) for each in called):
        return  # a hook of its weights may be traced into compiled code
    for weight in {id(each): each for each in (able[0], able[-1])}.values():
        session.edited.append(Watched(session, weight))


def content(session: Session) -> dict[str, float]:
    """Most edits in an update of a watched weight, and of its gradient."""
    found: dict[str, float] = {}
    for watched in session.edited:
        for name, edits in watched.edits().items():
            found[name] = max(edits, found.get(name, 0.0))
    return found
