"""What the program's argparse parsers returned, and which of it nobody had typed."""

from __future__ import annotations

import functools
from typing import Any

from .session import Session

NAMES_KEPT = 400


def install(argparse: Any, session: Session) -> None:
    """Listen to every ArgumentParser; a parser inside another (subcommands) counts with it."""
    parser = argparse.ArgumentParser
    parse, convert = parser.parse_known_args, parser._get_values
    typed: list[set[str]] = []
    """One set of destinations for the outermost parser at work."""

    @functools.wraps(parse)
    def parse_known_args(self: Any, *args: Any, **kwargs: Any) -> Any:
        outermost = not typed
        if outermost:
            typed.append(set())
        try:
            result = parse(self, *args, **kwargs)
            if outermost:
                _keep(session, result[0], typed[0])
            return result
        finally:
            if outermost:
                typed.clear()

    @functools.wraps(convert)
    def _get_values(self: Any, action: Any, words: Any) -> Any:
        if typed and (words or action.option_strings):
            typed[0].add(action.dest)
        return convert(self, action, words)

    parser.parse_known_args = parse_known_args
    parser._get_values = _get_values


def _keep(session: Session, namespace: Any, typed: set[str]) -> None:
    try:
        for name, value in list(vars(namespace).items())[:NAMES_KEPT]:
            plain = value is None or isinstance(value, (str, int, float, bool))
            session.arguments[str(name)] = value if plain else str(value)[:200]
            if name in typed:
                session.defaulted = [other for other in session.defaulted if other != name]
            elif name not in session.defaulted:
                session.defaulted.append(str(name))
    except Exception as problem:
        session.fail(problem)
