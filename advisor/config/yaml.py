"""YAML as PyYAML composes it; no tag is constructed, aliases stay shared.

PyYAML's nodes carry the places at which they stand, which its loaded values do not. The reader is
the one that most programs use, so that `on`, `1_000` or `1e-4` mean here what they mean there.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from advisor.config import spelling
from advisor.config.leaves import ALIAS, MAX_DEPTH, TOO_DEEP, Scalar, Syntax, syntax_error
from advisor.config.spelling import NUMBER, double_quoted
from advisor.errors import ConfigSyntaxError
from advisor.model import JsonScalar

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE = "tag:yaml.org,2002:"
_PROPERTIES = re.compile(r"(?:[&!]\S*(?:\s|#[^\r\n]*)*)+")
_READ = ("null", "bool", "int", "float")
_TEXT_TAGS = ("str", "timestamp", "merge", "value")
"""Tags of scalars kept as text: no one tunes a date."""

_PLAIN_TEXT = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+@=-]*(?: [A-Za-z0-9_./+@=-]+)*")

_constructor = SafeConstructor()
_resolve: Any = Resolver().resolve


def parse(text: str, name: str) -> list[Scalar]:
    """Scalars of a document, called `name` in messages. Raises ConfigSyntaxError."""
    try:
        _refuse_deep(text, name)
        documents = list(yaml.compose_all(text, Loader=_LOADER))
        if len(documents) > 1:
            raise _several(name, documents[1].start_mark)
        return [
            leaf for root in documents for leaf in _Reader(text, name).leaves(root, "", 0)
        ]
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        stated = ", ".join(part for part in (problem.context, problem.problem) if part)
        at = mark.index if mark else 0
        raise syntax_error(name, text, at, f"not valid YAML: {stated}") from problem
    except yaml.reader.ReaderError as problem:
        stated = f"not valid YAML: {problem.reason}"
        raise syntax_error(name, text, problem.position, stated) from problem


def _several(name: str, second: Any) -> ConfigSyntaxError:
    """Which of several documents a program reads cannot be known, nor how it merges them."""
    msg = (
        f"{name} holds several YAML documents, the second from line {second.line + 1} on. "
        "Only a file of one document is tuned: give each a file of its own."
    )
    return ConfigSyntaxError(msg)


def spell_text(value: str, old: str) -> str:
    """Quote a string like `old`, or to preserve it."""
    if old[:1] == '"' or not value.isprintable():
        return double_quoted(value)
    if old[:1] == "'" or not _PLAIN_TEXT.fullmatch(value) or _is_retyped(value):
        return "'" + value.replace("'", "''") + "'"
    return value


def _is_retyped(value: str) -> bool:
    """True if some loader would retype the text."""
    tag = _resolve(yaml.ScalarNode, value, (True, False))
    return (
        tag != f"{_CORE}str" or value.lower() in ("y", "n") or bool(NUMBER.fullmatch(value))
    )


def _refuse_deep(text: str, name: str) -> None:
    """Raise before the composer overruns the stack."""
    depth = 0
    event: Any
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise syntax_error(name, text, event.start_mark.index, TOO_DEEP)


class _Reader:
    """Scalars of a composed tree. An alias is told with the path that it repeats."""

    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name
        self._first: dict[int, str] = {}
        """Path of each node where it is written out."""

    def leaves(self, node: Any, path: str, position: int) -> Iterator[Scalar]:
        """Scalars of the node at `path`; an alias stands at `position`."""
        is_scalar = isinstance(node, yaml.ScalarNode)
        written = self._first.setdefault(id(node), path)
        if written != path:
            if is_scalar:
                value, _ = self._meaning(node)
                yield Scalar(path, value, position, position, f"{ALIAS} {written}")
        elif is_scalar:
            yield self._scalar(node, path)
        elif isinstance(node, yaml.MappingNode):
            yield from self._mapping(node, path)
        else:
            for number, item in enumerate(node.value):
                place = spelling.member(path, number)
                yield from self.leaves(item, place, item.start_mark.index)

    def _mapping(self, node: Any, path: str) -> Iterator[Scalar]:
        members = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._error(key, "a list or a mapping stands where a key should be")
            # of equal keys the last counts
            members[key.tag, key.value] = (key, value)
        for key, value in members.values():
            place = spelling.member(path, key.value)
            yield from self.leaves(value, place, key.end_mark.index)

    def _scalar(self, node: Any, path: str) -> Scalar:
        value, why = self._meaning(node)
        start, end = node.start_mark.index, node.end_mark.index
        properties = _PROPERTIES.match(self._text, start, end)
        start = properties.end() if properties else start
        return Scalar(path, value, start, end, why)

    def _meaning(self, node: Any) -> tuple[JsonScalar, str | None]:
        """Value of a scalar, and any edit problem."""
        text, tag = node.value, node.tag.removeprefix(_CORE)
        why = "it is a block of text" if node.style in ("|", ">") else None
        if tag not in _READ:
            is_text = tag in _TEXT_TAGS
            return text, why if is_text else f"its tag {tag} gives it a meaning of its own"
        try:
            return SafeConstructor.yaml_constructors[_CORE + tag](_constructor, node), why
        except (ValueError, KeyError, IndexError, OverflowError) as problem:
            raise self._error(node, f"{text[:40]!r} is no value: {problem}") from problem

    def _error(self, node: Any, problem: str) -> Exception:
        return syntax_error(self._name, self._text, node.start_mark.index, problem)


SYNTAX = Syntax(parse=parse, spell_text=spell_text, null="null")
