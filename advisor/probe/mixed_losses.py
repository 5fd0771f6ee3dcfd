"""Losses that hold the items of a batch against each other.

A contrastive loss, or a share over the whole batch, is another one in a larger batch, though an
update has as many samples. Losses of two runs tell that only where nothing else differs: dropout
and augmentation hide it. The loss itself tells it exactly: where it is a mean over items, the
gradient of one row of the network's output does not change with another row. So once, in an early
update, the derivative of that gradient is asked for.
"""

from __future__ import annotations

from typing import Any

from . import batches
from .session import Session

UPDATE = 1
"""Updates before the look: the first has compiled, and allocated, what it needs.

Judgement: none would count what is allocated once, and more show it later or never in a short run.
"""
OUTPUTS = 4
"""Tensors of outputs that are looked at: two views of the items come in two calls.

Judgement: fewer miss one of two networks with two outputs each, each more takes another derivative.
"""
NUMBERS = 262_144
"""Numbers of a tensor at most, as each derivative is as large: 1 MiB. Judgement."""
LEAST = 1e-4
"""Share of the own row's derivative below which another row's is rounding of float32."""


def keep(session: Session, inputs: Any, output: Any, items: float) -> None:
    """Keep outputs of a network's call until their loss is known.

    Outputs that another call takes are no longer what the loss is made of; their derivative would
    go through that whole network.
    """
    if session.updates != UPDATE or session.counting or session.mixing is not None:
        session.outputs = []
        return
    taken = {id(tensor) for tensor in batches.tensors_in(inputs)}
    kept = [tensor for tensor in session.outputs if id(tensor) not in taken]
    found = [
        t for t in batches.tensors_in(output, OUTPUTS) if _is_of_rows(session, t, items)
    ]
    session.outputs = [*kept, *found][-OUTPUTS:]


def _is_of_rows(session: Session, tensor: Any, items: float) -> bool:
    return (
        tensor.requires_grad
        and tensor.grad_fn is not None
        and not tensor.retains_grad
        and not tensor._backward_hooks
        and tensor.layout is session.torch.strided
        and tensor.dim() > 0
        and len(tensor) == items > 1
        and tensor.numel() <= NUMBERS
    )


def look(session: Session, tensors: Any) -> None:
    """Ask how the gradient of one row changes with the others, before the gradients are made."""
    outputs, session.outputs = session.outputs, []
    several = tensors if isinstance(tensors, (list, tuple)) else (tensors,)
    if not outputs or len(several) != 1 or session.capture is not None:
        return
    grad = session.torch.autograd.grad
    muted, session.muted = session.muted, True  # the hook of this very function
    try:
        with session.unseen():
            (loss,) = several
            ways = {"create_graph": True, "allow_unused": True}
            gradients = grad(loss, outputs, **ways)
            rows = [(g, g[0]) for g in gradients if g is not None and g.requires_grad]
            if not rows:  # linear, as a loss of a critic is
                session.mixing = []
                return
            weighed = sum((row * _unlike(session.torch, row)).sum() for _, row in rows)
            again = grad(weighed, outputs, retain_graph=True, allow_unused=True)
            session.mixing = [
                (part[1:].abs().amax(), part[0].abs().amax())
                for part in again
                if part is not None
            ]
    except Exception:  # a step of the loss has no second derivative: nothing is known
        session.mixing = []
    finally:
        session.muted = muted


def _unlike(torch: Any, row: Any) -> Any:
    """Weights of a row's numbers, all unlike, so that its derivatives do not cancel each other.

    They are no random numbers: a draw of ours would change those of the program.
    """
    at = torch.arange(row.numel(), device=row.device, dtype=row.dtype)
    return (1 + (at * 0.754877) % 1).reshape(row.shape)


def content(session: Session) -> bool | None:
    """True if a row's gradient follows other rows; None where it was not seen."""
    if not session.mixing:
        return None
    others, own = (max(map(float, part)) for part in zip(*session.mixing))
    return bool(others > LEAST * own)
