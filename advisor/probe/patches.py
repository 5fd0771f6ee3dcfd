"""Patches: replaced attributes that can be restored."""

from __future__ import annotations

from typing import Any, Callable


class Patches:
    """Changes to other modules, in order."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Set `owner.name` and remember what it replaced."""
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
        """Restore everything; return True if all succeeded."""
        whole = True
        while self._undo:
            try:
                self._undo.pop()()
            except Exception:
                whole = False
        return whole


_MISSING = object()
