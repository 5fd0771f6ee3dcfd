"""YAML as PyYAML reads it; no tag is constructed.

Read from the parser's events, so that nothing recurses and aliases stay shared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import yaml
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from advisor.config import insertion, paths
from advisor.config.leaves import (
    MAX_DEPTH,
    MAX_VALUES,
    Leaf,
    Leaves,
    Parsed,
    syntax_error,
    too_many,
)
from advisor.config.spelling import double_quoted

if TYPE_CHECKING:
    from advisor.model import JsonScalar

MAX_EXPANDED = 4 * MAX_VALUES
"""Most values a document may have once its aliases are written out."""

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


NEW_KEY = paths.NAME
NULL: str | None = "null"
TRUE = "true"
COMMENT = "#"
member = paths.member
insert = insertion.after


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
    documents = reader.documents
    data = None if not documents else documents[0] if len(documents) == 1 else documents
    return Parsed(text, data, reader.leaves)


def spell_text(value: str, old: str) -> str:
    """Quote a string like `old`, or to preserve it."""
    if old[:1] == '"' or not value.isprintable():
        return double_quoted(value)
    if old[:1] == "'" or not _PLAIN_TEXT.fullmatch(value) or _is_retyped(value):
        return "'" + value.replace("'", "''") + "'"
    return value


def spell_key(key: str, sibling: str) -> str:
    """A key quoted as its sibling's is."""
    return spell_text(key, sibling)


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


@dataclass(slots=True)
class _Frame:
    """An open mapping or list; `size` counts unfolded values."""

    path: str
    is_list: bool
    anchor: str | None
    flow: bool
    items: list[Any] = field(default_factory=list)
    pairs: dict[Any, Any] = field(default_factory=dict)
    merged: list[dict[Any, Any]] = field(default_factory=list)
    key: tuple[int, int] | None = None
    """Span of the key whose value is awaited."""
    name: Any = None
    merging: bool = False
    place: str = ""
    began: int = 0
    seen: dict[Any, tuple[int, int]] = field(default_factory=dict)
    """Key to the stretch of leaves its value holds."""
    size: int = 1


@dataclass(frozen=True, slots=True)
class _Anchor:
    path: str
    value: Any
    size: int


class _Reader:
    """One pass over the parser's events."""

    def __init__(self, text: str, name: str) -> None:
        self.leaves = Leaves()
        self.documents: list[Any] = []
        self._text = text
        self._name = name
        self._stack: list[_Frame] = []
        self._anchors: dict[str, _Anchor] = {}
        self._open: set[str] = set()
        self._several = False

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
                    self._begin_document()
        finally:
            loader.dispose()

    def _begin_document(self) -> None:
        """Turn the whole into a list of documents."""
        self._anchors = {}
        if len(self.documents) == 1:
            self.leaves.notes.append("several YAML documents in one file, numbered [0], [1], ...")
            found = self.leaves.found
            for number, leaf in enumerate(found):
                if leaf:
                    path, parent = _under_first(leaf.path), _under_first(leaf.parent)
                    found[number] = leaf._replace(path=path, parent=parent)
            aliases = self.leaves.aliases
            renamed = {_under_first(a): _under_first(b) for a, b in aliases.items()}
            aliases.clear()
            aliases.update(renamed)

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
        frame = self._stack[-1] if self._stack else None
        if frame and not frame.is_list and frame.key is None:
            merging = event.value == "<<" and event.implicit[0]
            self._key(event, frame, value, event.value, merging=merging)
            if event.anchor:
                self._name_anchor(event, event.anchor, _Anchor(frame.place, value, 1))
            return
        if event.anchor or event.tag:
            properties = _PROPERTIES.match(self._text, start, end)
            start = properties.end() if properties else start
        path = self._leaf(frame, value, start, end, why)
        if event.anchor:
            self._name_anchor(event, event.anchor, _Anchor(path, value, 1))
        self._value(event, value, 1)

    def _alias(self, event: Any) -> None:
        anchor = self._anchors.get(event.anchor)
        if anchor is None:
            problem = (
                f"*{event.anchor} refers to the value it is part of"
                if event.anchor in self._open
                else f"*{event.anchor} refers to an anchor that is not there"
            )
            raise self._error(event, problem)
        frame = self._stack[-1] if self._stack else None
        if frame and not frame.is_list and frame.key is None:
            self._key(event, frame, anchor.value, str(anchor.value), merging=False)
            return
        self.leaves.aliases[self._place(frame)] = anchor.path
        if not isinstance(anchor.value, (dict, list)):
            start, end = event.start_mark.index, event.end_mark.index
            self._leaf(frame, anchor.value, start, end, f"it repeats {anchor.path}")
        self._value(event, anchor.value, anchor.size)

    def _leaf(
        self, frame: _Frame | None, value: JsonScalar, start: int, end: int, why: str | None
    ) -> str:
        path = self._place(frame)
        parent, key, flow = (frame.path, frame.key, frame.flow) if frame else ("", None, False)
        self.leaves.found.append(Leaf(path, value, start, end, parent, why, key, flow))
        return path

    def _enter(self, event: Any, *, is_list: bool) -> None:
        frame = self._stack[-1] if self._stack else None
        if frame and not frame.is_list and frame.key is None:
            raise self._error(event, "a list or a mapping stands where a key should be")
        if len(self._stack) >= MAX_DEPTH:
            raise self._error(event, f"nested more than {MAX_DEPTH} levels deep")
        flow = bool(event.flow_style)
        self._stack.append(_Frame(self._place(frame), is_list, event.anchor, flow))
        if event.anchor:
            self._open.add(event.anchor)

    def _leave(self, event: Any) -> None:
        frame = self._stack.pop()
        value: Any = frame.items
        if not frame.is_list:
            value = {}
            for mapping in frame.merged:
                value.update(mapping)
            value.update(frame.pairs)
        if frame.anchor:
            self._open.discard(frame.anchor)
            self._name_anchor(event, frame.anchor, _Anchor(frame.path, value, frame.size))
        self._value(event, value, frame.size)

    def _name_anchor(self, event: Any, name: str, anchor: _Anchor) -> None:
        if name in self._anchors:
            raise self._error(event, f"the anchor &{name} is given twice")
        self._anchors[name] = anchor

    def _key(self, event: Any, frame: _Frame, key: Any, text: str, *, merging: bool) -> None:
        if isinstance(key, (dict, list)):
            raise self._error(event, "a list or a mapping stands where a key should be")
        frame.key = (event.start_mark.index, event.end_mark.index)
        frame.name, frame.merging = key, merging
        frame.place = paths.member(frame.path, text)
        frame.began = len(self.leaves.found)
        if key in frame.seen and not merging:
            self.leaves.drop(*frame.seen[key])
            self.leaves.again[frame.place] = frame.key[0]

    def _place(self, frame: _Frame | None) -> str:
        """Path of the value that begins now."""
        if frame is None:
            return paths.item("", len(self.documents)) if self.documents else ""
        return paths.item(frame.path, len(frame.items)) if frame.is_list else frame.place

    def _value(self, event: Any, value: Any, size: int) -> None:
        """A value ended: hand it to its holder."""
        if not self._stack:
            self.documents.append(value)
            return
        frame = self._stack[-1]
        frame.size += size
        if frame.size > MAX_EXPANDED:
            problem = f"its aliases unfold to more than {MAX_EXPANDED:,} values"
            raise self._error(event, problem)
        if frame.is_list:
            frame.items.append(value)
            return
        if frame.merging:
            several = value if isinstance(value, list) else [value]
            if not all(isinstance(mapping, dict) for mapping in several):
                raise self._error(event, "<< needs a mapping or a list of mappings")
            frame.merged += reversed(several)
        else:
            frame.pairs[frame.name] = value
        frame.seen[frame.name] = (frame.began, len(self.leaves.found))
        frame.key = None


def _under_first(path: str) -> str:
    return f"[0]{path}" if path.startswith("[") or not path else f"[0].{path}"
