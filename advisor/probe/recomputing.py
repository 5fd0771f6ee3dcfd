"""Whether activations are computed twice: torch's own checkpointing, which libraries call too."""

from __future__ import annotations

import sys
from typing import Any, Callable

from .session import Session

REENTRANT = "check_backward_validity"
PLAIN = ("_checkpoint_without_reentrant_generator", "_checkpoint_without_reentrant")
"""What torch calls in each of the two kinds, by the names of its versions."""


def watch(torch: Any, session: Session) -> None:
    """Tell of the first call; from then on nothing of ours is in the way."""
    module: Any = sys.modules.get(f"{torch.__name__}.utils.checkpoint")
    names = [name for name in (REENTRANT, *PLAIN) if callable(vars(module).get(name))]
    if len(names) < 2:
        return
    session.recomputes = False
    for name in names:
        session.patches.put(module, name, _told(session, module, name))


def _told(session: Session, module: Any, name: str) -> Callable[..., Any]:
    original = vars(module)[name]

    def called(*args: Any, **kwargs: Any) -> Any:
        session.recomputes = True
        setattr(module, name, original)
        return original(*args, **kwargs)

    return called
