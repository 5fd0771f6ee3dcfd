"""Where a call of a module from outside any module is noticed.

Torch's global hook tells of every module, and makes the call of each take microseconds longer. It
is out while a root runs, and in most steps of a training that calls no module but settled ones,
whose classes tell by themselves: `settled`.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

KEY = -7001
"""In torch's dict; torch's own are counted from 0 up."""
SPARED = 17
"""Of so many updates one is looked through for new modules. No number of networks that take turns
divides it."""


class Entrance:
    """Open while a call would be one from outside, and is to be noticed."""

    def __init__(
        self, hooks: Dict[int, Any], hook: Optional[Callable[[Any, Any], None]] = None
    ) -> None:
        self._hooks = hooks
        self._hook = hook
        self.rests = 0
        """Updates until new modules are looked for again, in a training that rests from it."""
        self.met = True
        """A module was called that is not settled, or whose class tells nothing."""
        self.open = False
        self.hooked = False
        """Torch tells of every module."""
        self.reopen()

    @property
    def is_gone(self) -> bool:
        """The probe has stepped aside."""
        return self._hook is None

    def shut(self) -> bool:
        """Notice nothing for a while; returns whether it was open."""
        if not self.open:
            return False
        self.open = False
        if self.hooked:
            self._hook_out()
        return True

    def reopen(self) -> None:
        """Notice calls again."""
        if self._hook is not None:
            self.open = True
            if not self.rests:
                self._hook_in()

    def remove(self) -> None:
        """For good."""
        self.open, self._hook = False, None
        self._hook_out()

    def updated(self) -> None:
        """Between two updates of a training: whether new modules are looked for until the next."""
        if self.met:
            self.met = False
        else:
            self._rest((self.rests or SPARED) - 1)

    def look(self) -> None:
        """Look for new modules until the next update at least."""
        self.met = True
        self._rest(0)

    def _rest(self, updates: int) -> None:
        self.rests = updates
        if updates:
            self._hook_out()
        elif self.open:
            self._hook_in()

    def _hook_in(self) -> None:
        self._hooks[KEY] = self._hook
        self.hooked = True

    def _hook_out(self) -> None:
        self._hooks.pop(KEY, None)
        self.hooked = False
