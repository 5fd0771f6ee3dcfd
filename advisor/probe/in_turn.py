"""Switches in turn: each is put on for a spell and taken off again, while the process runs on.

    none  a  b  c  none  c  b  a  none  last

It comes after the window, so what is kept of the run is the program as it is. The program is
measured between the switches too: where the process drifts, that shows. `last` is a switch whose
effect would outlive its spell. The argument of a DataLoader is none of them: it takes effect where
the next pass begins, which a program that is slow to start hardly reaches, and a pass that is
broken off is another one.
"""

from __future__ import annotations

import time
from typing import Any

from . import applying, measure, steps, window
from .resting import filled
from .session import Session
from .whatif import WhatIf

NONE = ""
"""Stands for the program as it is."""
LASTING = ("channels_last",)
"""Weights that are laid out anew stay so."""

clock = time.perf_counter


def order(names: tuple[str, ...]) -> list[str]:
    """The spells in their order: there, and back again, which cancels a steady drift; at most one
    whose effect lasts."""
    lasting = [name for name in names if name in LASTING][:1]
    undone = [name for name in names if name not in LASTING]
    back = [NONE, *reversed(undone), NONE] if undone else []
    return [NONE, *undone, *back, *lasting]


class InTurn:
    """The spells of one process: those that were, and those to come."""

    def __init__(self, session: Session, names: tuple[str, ...]) -> None:
        self._session = session
        session.rota.always = True  # what a call raises must be seen
        session.entrance.look()
        self._plan = {**session.plan, "whole_batches": 0}
        self._left = order(names)
        self._name: str | None = None
        """Of the switch whose spell it is; None before the first."""
        self._on: WhatIf | None = None
        self._since = 0.0
        self._spoilt = False
        """A call of the spell raised: what it did not do took no time."""
        self._told: dict[str, dict[str, Any]] = {}

    def look(self) -> float | None:
        """Seconds until the next look is worth it; None once all spells are over."""
        if self._name is not None:
            need = self._missing_s()
            if need is not None:
                return need
            self._take_off()
        if not self._begin_next():
            return None
        return float(self._plan.get("measure_s") or 3.0)

    def spoil(self, problem: BaseException) -> None:
        """A forward or a backward raised: the spell is not told, whether the program bears it."""
        self._spoilt = True
        under = f"with {self._name} put on" if self._name else "with no switch on"
        self._session.note(f"in turn, {under}, it raised {type(problem).__name__}: {problem}")

    def told(self) -> list[dict[str, Any]]:
        """The record's entry: of each switch that was tried; the program may end amid a spell."""
        self._note()
        return list(self._told.values())

    def _begin_next(self) -> bool:
        """Put the next switch on, past those that do not apply; False where none is left."""
        while self._left:
            self._name = name = self._left.pop(0)
            entry = {"name": name, "applied": not name, "why": None, "spells": []}
            self._told.setdefault(name, entry)
            if self._put_on(name):
                self._since, self._spoilt = clock(), False
                return True
            self._take_off()
            self._left = [other for other in self._left if other != name]
        return False

    def _put_on(self, name: str) -> bool:
        if name == NONE:
            return True
        self._on = whatif = WhatIf(self._session, name)
        try:
            applying.put_on(self._session, whatif)
        except Exception as problem:
            whatif.refuse(f"{type(problem).__name__}: {problem}"[:300])
        return whatif.why is None or any(whatif.applied.values())

    def _take_off(self) -> None:
        if self._on is not None:
            self._note()
            if not self._on.patches.undo():
                self._session.note(f"in turn, {self._on.asked} could not be taken off again")
                self._left = []
            self._on = None

    def _note(self) -> None:
        """What came of the switch that is on."""
        if self._on is not None:
            said = self._on.told()
            self._told[self._on.asked].update(applied=said["applied"], why=said["why"])

    def _missing_s(self) -> float | None:
        """Seconds that the spell may still take; None when it is over, and kept."""
        session = self._session
        log = filled(session.log)
        ledger = steps.read(log, self._plan)
        if ledger is None:
            return 0.2
        found, need = window.find(log, ledger, self._plan, since=self._since)
        if need is not None:
            return need.seconds
        if session.root_runs or found is None:  # nothing is switched within a forward
            return 0.0
        device = measure.read_clock(session)
        if device is not None:
            found.on_device(device)
        epoch, rate = session.epoch, found.units_per_s()
        spell = {"start": found.start + epoch, "end": found.end + epoch, "units_per_s": rate}
        if rate and self._name is not None and not self._spoilt:
            self._told[self._name]["spells"].append(spell)
        return None
