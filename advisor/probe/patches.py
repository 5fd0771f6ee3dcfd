"""Attributes of other modules that were replaced, so that all can be put back."""

from __future__ import annotations

from typing import Any, Callable


class Patches:
    """What was changed in the process, in order."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Set `owner.name`; a class that only inherited it gets it taken away again."""
        held = vars(owner).get(name, _MISSING)

        def back() -> None:
            if held is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, held)

        setattr(owner, name, value)
        self._undo.append(back)

    def on_undo(self, action: Callable[[], object]) -> None:
        """Something else that takes a hook back."""
        self._undo.append(action)

    def undo(self) -> bool:
        """Put everything back, the latest first; returns whether all of it went back."""
        whole = True
        while self._undo:
            try:
                self._undo.pop()()
            except Exception:
                whole = False
        return whole


_MISSING = object()
