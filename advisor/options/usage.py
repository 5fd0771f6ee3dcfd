"""Options that a program declares by the text of its usage, as docopt reads it."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from advisor.options.calls import called, converted
from advisor.options.declared import Declared

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from advisor.options.source import Module, Unit

_OPTION = re.compile(r"[ \t]*(-\S.*?)(?:[ \t]{2,}(.*)|)$")
_SPELLING = re.compile(r"(--?[A-Za-z][\w-]*)(?:[ =](<[^>]+>|[A-Z][A-Z_]*))?")
_DEFAULT = re.compile(r"\[default:\s*(.*?)\]", re.IGNORECASE)
_INT = r"[-+]?\d+"
_FLOAT = r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"


def declared(units: Sequence[Unit]) -> Iterator[Declared]:
    """Every option line of the text at the top of a file that hands it to docopt."""
    for unit in units:
        calls = (node for node in unit.every if isinstance(node, ast.Call))
        if any(called(call) == "docopt" for call in calls):
            yield from _lines(unit.module)


def _lines(module: Module) -> Iterator[Declared]:
    text = ast.get_docstring(module.tree, clean=False) or ""
    first = module.tree.body[0].lineno if text else 0
    for number, line in enumerate(text.splitlines(), first):
        found = _OPTION.fullmatch(line)
        spelled = [*_SPELLING.finditer(found[1])] if found else []
        if not found or not spelled:
            continue
        told = _DEFAULT.search(found[2] or "")
        takes_value = any(each[2] for each in spelled)
        flags = sorted((each[1] for each in spelled), key=len)
        yield Declared(
            flag=flags[-1],
            default=_worth(told[1]) if told and takes_value else None if takes_value else False,
            form="apart" if takes_value else "bare",
            source=f"{module.path.name}:{number}",
            others=tuple(flags[:-1]),
            comment=found[2],
        )


def _worth(text: str) -> int | float | str | None:
    """What a written default most likely means."""
    kind = "int" if re.fullmatch(_INT, text) else "float" if re.fullmatch(_FLOAT, text) else ""
    value = converted(text, kind)
    return value if not isinstance(value, bool) else None
