"""Arguments that the program declares and parses.

`install` listens to values during a measured run. `start_recording` records every option
that a parser declares, in a run that ends once arguments are parsed.
"""

from __future__ import annotations

import builtins
import functools
import json
import os
import sys
import threading
from typing import Any, Callable

from . import parsers
from .clocks import monotonic, sleep
from .parsers import PARSERS, PLAIN, DeclaredOption, Parser, ParseReading
from .session import Session

NAMES_KEPT = 400
"""Values of a parser that are recorded."""
GRACE_S = 1.0
"""Wait after a complete parse: some programs parse twice.

Judgement: too short misses the second parse, and each question to a program waits this long."""
LONG_GRACE_S = 20.0
"""Wait where another parse follows: between the two, a program may import what it runs. Judgement.
"""
LEAVE = getattr(sys.modules.get("posix"), "_exit", os._exit)
"""The system's exit: no handler of the program runs."""


def install(argparse: Any, session: Session) -> None:
    """Observe every ArgumentParser, with subcommands under their parent."""

    def keep(result: Any, *_: Any) -> None:
        kept = session.facts["arguments"]
        try:
            for name, value in list(vars(result[0]).items())[:NAMES_KEPT]:
                kept[str(name)] = value if isinstance(value, PLAIN) else str(value)[:200]
        except Exception as problem:
            session.fail(problem)

    parsers.listen(argparse, keep)


def start_recording(path: str, when_imported: Callable[[Any], None]) -> None:
    """Record each parser's options, then end the process."""
    recorder = OptionRecorder(path)
    os.environ.setdefault("PYTHON_TYRO_BACKEND", "argparse")  # its copy, hooked below

    def hook_all(rows: list[Parser], module: Any) -> None:
        for row in rows:
            parsers.hook(row, module, functools.partial(recorder.parsed, row))

    by_module: dict[str, list[Parser]] = {}
    for row in PARSERS:
        by_module.setdefault(row.module, []).append(row)
    when_imported(
        {name: functools.partial(hook_all, rows) for name, rows in by_module.items()}
    )
    _hook_exec(recorder)


class OptionRecorder:
    """Options found so far, written before the process ends.

    Which parse is the last one cannot be told when it comes: some programs parse twice, or leave
    words to another library's parser. So the process ends from a thread, a while after it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.options: dict[str, DeclaredOption] = {}
        self.untold: dict[str, ParseReading] = {}
        """By library, the last that gave a reason why further options are not known."""
        self._ends_at = float("inf")

    def parsed(self, row: Parser, *call: Any, **named: Any) -> None:
        """Read and add what one parse told; call: the function's result and its arguments."""
        try:
            reading = row.read(*call, **named) if _is_program() else None
            if reading is not None:
                whole = (
                    reading if isinstance(reading, ParseReading) else ParseReading(reading)
                )
                self._add(row, whole)
        except Exception as problem:
            print(f"gpu-advisor: options not recorded: {problem!r}", file=sys.stderr)

    def _add(self, row: Parser, reading: ParseReading) -> None:
        """Add options. A complete parse ends the process soon."""
        options = list(reading.options)
        kept = self.untold.get(row.library)
        told = options or any(
            option["library"] == row.library for option in self.options.values()
        )
        if told and kept is not None and kept.provisional:
            del self.untold[row.library]
        if reading.untold and not (told and reading.provisional):
            self.untold[row.library] = reading
        for option in options:
            if not option["typed"] and self._default_is_told(option):
                continue
            key = f"{option['command'] or ''} {option['flags'][0]}"
            more = {"library": row.library, "at_end": row.at_end}
            self.options[key] = {**more, **option}
        draft = f"{self.path}.{os.getpid()}"
        with open(draft, "w", encoding="utf-8") as file:
            record = {
                "options": list(self.options.values()),
                "untold": [reason.untold for reason in self.untold.values()],
            }
            json.dump(record, file)
        os.replace(draft, self.path)
        if reading.provisional:
            return
        if self._ends_at == float("inf"):
            threading.Thread(target=self._end, daemon=True).start()
        self._ends_at = monotonic() + (GRACE_S if reading.complete else LONG_GRACE_S)

    def _default_is_told(self, field: DeclaredOption) -> bool:
        """Give a field's value to the option that sets it and has no default of its own."""
        setters = [
            option
            for option in self.options.values()
            if option["typed"] and option["field"] == field["field"]
        ]
        for option in setters:
            if option["default"] is None:
                option["default"] = field["default"]
        return bool(setters)

    def _end(self) -> None:
        while monotonic() < self._ends_at:
            sleep(0.05)
        LEAVE(0)


def _is_program() -> bool:
    """Return True in the program, False in a launcher."""
    script = os.environ.get("GPU_ADVISOR_PARSE_SCRIPT", "")
    path = os.path.realpath(sys.argv[0] if sys.argv else "")
    path, script = (
        place.removesuffix(".py").removesuffix("/__main__") for place in (path, script)
    )
    return path.endswith(script)


def _hook_exec(recorder: OptionRecorder) -> None:
    """Globals that executed code overrides from the command line."""
    before = builtins.exec

    def read(names: Any, declared: Any) -> Any:
        for name, value in names.items():
            is_plain = isinstance(value, PLAIN) and value is not None
            if name in declared and not name.startswith("_") and is_plain:
                yield parsers.option([f"--{name}"], value)

    row = Parser("globals", "builtins", ("exec",), read, at_end=True)

    def run(source: Any, globals: Any = None, locals: Any = None, **extra: Any) -> None:  # noqa: A002
        frame = sys._getframe(1)
        names = frame.f_globals if globals is None else globals
        inner = frame.f_locals if globals is None and locals is None else locals
        declared = set(names)
        before(source, names, inner, **extra)
        if isinstance(source, str) and "sys.argv" in source and "globals()" in source:
            recorder.parsed(row, names, declared)

    builtins.exec = run
