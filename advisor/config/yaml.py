"""YAML as PyYAML reads it; no tag is constructed.

Read from the parser's events, so that nothing recurses and aliases stay shared.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from advisor.config.leaves import (
    MAX_DEPTH,
    MAX_VALUES,
    Outline,
    Parsed,
    syntax_error,
    too_many,
)
from advisor.config.spelling import double_quoted
from advisor.config.syntax import Syntax

if TYPE_CHECKING:
    from advisor.model import JsonScalar

MAX_EVENTS = 2 * MAX_VALUES
"""A member has two: key and value."""

MAX_NUMBER_CHARS = 400
"""Longest text tried as a number; base 60 is slow."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE = "tag:yaml.org,2002:"
_PROPERTIES = re.compile(r"(?:[&!]\S*(?:\s|#[^\r\n]*)*)+")
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_READERS = {
    "null": SafeConstructor.construct_yaml_null,
    "bool": SafeConstructor.construct_yaml_bool,
    "int": SafeConstructor.construct_yaml_int,
    "float": SafeConstructor.construct_yaml_float,
}
_TEXT_TAGS = ("str", "timestamp", "merge", "value")
"""Tags whose scalars are kept as text: no one tunes a date."""

_PLAIN_TEXT = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+@=-]*(?: [A-Za-z0-9_./+@=-]+)*")
_NUMBER_TO_YAML_12 = re.compile(
    r"[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?|0o[0-7]+|0x[0-9a-fA-F]+"
)

_constructor = SafeConstructor()


def parse(text: str, name: str) -> Parsed:
    """Raises ConfigSyntaxError with line and column."""
    reader = _Reader(text, name)
    try:
        reader.run()
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        stated = ", ".join(part for part in (problem.context, problem.problem) if part)
        raise syntax_error(
            name, text, mark.index if mark else 0, f"not valid YAML: {stated}"
        ) from problem
    except yaml.reader.ReaderError as problem:
        stated = f"not valid YAML: {problem.reason}"
        raise syntax_error(name, text, problem.position, stated) from problem
    return Parsed(text, reader.outline.leaves)


def spell_text(value: str, old: str) -> str:
    """Quote a string like `old`, or to preserve it."""
    if old[:1] == '"' or not value.isprintable():
        return double_quoted(value)
    if old[:1] == "'" or not _PLAIN_TEXT.fullmatch(value) or _is_retyped(value):
        return "'" + value.replace("'", "''") + "'"
    return value


def _is_retyped(value: str) -> bool:
    """Return True if some loader would retype the text."""
    if _implicit_tag(value) != "str" or value.lower() in ("y", "n"):
        return True
    return bool(_NUMBER_TO_YAML_12.fullmatch(value))


@lru_cache(maxsize=4096)
def _plain_meaning(text: str) -> tuple[JsonScalar, str | None]:
    """Value of a plain scalar, and edit problem."""
    tag = _implicit_tag(text)
    if tag in ("int", "float") and _SEXAGESIMAL.fullmatch(text):
        return _read(text, tag), "it is a base-60 number to YAML 1.1 and text to other loaders"
    return _read(text, tag), None


def _tagged_meaning(text: str, tag: str) -> tuple[JsonScalar, str | None]:
    short = tag.removeprefix(_CORE)
    if short in _READERS or short in _TEXT_TAGS:
        return _read(text, short), None
    return text, f"its tag {tag} gives it a meaning of its own"


def _read(text: str, tag: str) -> JsonScalar:
    """Read with PyYAML and raise its errors."""
    if tag not in _READERS:
        return text
    if len(text) > MAX_NUMBER_CHARS:
        msg = f"a number of {len(text):,} characters"
        raise ValueError(msg)
    value: JsonScalar = _READERS[tag](_constructor, yaml.ScalarNode(tag, text))
    return value


def _implicit_tag(text: str) -> str:
    table = Resolver.yaml_implicit_resolvers
    for tag, pattern in table.get(text[:1], ()):
        if pattern.match(text):
            return str(tag).removeprefix(_CORE)
    return "str"


class _Anchor(NamedTuple):
    path: str
    value: JsonScalar
    is_scalar: bool


class _Reader:
    """One pass over the parser's events."""

    def __init__(self, text: str, name: str) -> None:
        self.outline = Outline()
        self._text = text
        self._name = name
        self._documents = 0
        self._anchors: dict[str, _Anchor] = {}
        self._named: list[str | None] = []
        """Anchors of the open mappings and lists."""

    def run(self) -> None:
        loader = _LOADER(self._text)
        count = 0
        try:
            while (event := loader.get_event()) is not None:
                count += 1
                if count > MAX_EVENTS:
                    raise too_many(self._name)
                kind = type(event)
                if kind is yaml.ScalarEvent:
                    self._scalar(event)
                elif kind is yaml.AliasEvent:
                    self._alias(event)
                elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                    self._enter(event, is_list=kind is yaml.SequenceStartEvent)
                elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                    self._leave(event)
                elif kind is yaml.DocumentStartEvent:
                    self._documents += 1
                    if self._documents > 1:
                        raise self._error(event, "a second YAML document; keep one in a file")
        finally:
            loader.dispose()

    def _error(self, event: Any, problem: str) -> Exception:
        return syntax_error(self._name, self._text, event.start_mark.index, problem)

    def _meaning(self, event: Any) -> tuple[JsonScalar, str | None]:
        """Value of a scalar, and any edit problem."""
        text, tag = event.value, event.tag
        try:
            if tag is None or tag == "!":
                value, why = _plain_meaning(text) if event.implicit[0] else (text, None)
            else:
                value, why = _tagged_meaning(text, tag)
        except (ValueError, KeyError, IndexError, OverflowError) as problem:
            raise self._error(event, f"{text[:40]!r} is no value: {problem}") from problem
        if event.style in ("|", ">"):
            why = "it is a block of text"
        return value, why

    def _scalar(self, event: Any) -> None:
        value, why = self._meaning(event)
        start, end = event.start_mark.index, event.end_mark.index
        if self.outline.awaits_key:
            merging = event.value == "<<" and bool(event.implicit[0])
            path = self.outline.key(value, event.value, (start, end), again=merging)
        else:
            if event.anchor or event.tag:
                properties = _PROPERTIES.match(self._text, start, end)
                start = properties.end() if properties else start
            path = self.outline.scalar(value, start, end, why)
        self._name_anchor(event, event.anchor, _Anchor(path, value, is_scalar=True))

    def _alias(self, event: Any) -> None:
        anchor = self._anchors.get(event.anchor)
        start, end = event.start_mark.index, event.end_mark.index
        if anchor is None:
            problem = (
                f"*{event.anchor} refers to the value it is part of"
                if event.anchor in self._named
                else f"*{event.anchor} refers to an anchor that is not there"
            )
            raise self._error(event, problem)
        if self.outline.awaits_key:
            self._refuse_as_key(event, is_scalar=anchor.is_scalar)
            self.outline.key(anchor.value, str(anchor.value), (start, end))
            return
        self.outline.leaves.aliases[self.outline.place()] = anchor.path
        if anchor.is_scalar:
            self.outline.scalar(anchor.value, start, end, f"it repeats {anchor.path}")
        else:
            self.outline.end()

    def _refuse_as_key(self, event: Any, *, is_scalar: bool) -> None:
        if not is_scalar:
            raise self._error(event, "a list or a mapping stands where a key should be")

    def _enter(self, event: Any, *, is_list: bool) -> None:
        if self.outline.awaits_key:
            self._refuse_as_key(event, is_scalar=False)
        if self.outline.depth >= MAX_DEPTH:
            raise self._error(event, f"nested more than {MAX_DEPTH} levels deep")
        self.outline.open(is_list=is_list, flow=bool(event.flow_style))
        self._named.append(event.anchor)

    def _leave(self, event: Any) -> None:
        path = self.outline.close()
        self._name_anchor(event, self._named.pop(), _Anchor(path, None, is_scalar=False))

    def _name_anchor(self, event: Any, name: str | None, anchor: _Anchor) -> None:
        if name in self._anchors:
            raise self._error(event, f"the anchor &{name} is given twice")
        if name:
            self._anchors[name] = anchor


SYNTAX = Syntax(parse=parse, spell_text=spell_text, spell_key=spell_text, null="null")
