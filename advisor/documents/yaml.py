"""YAML as PyYAML reads it: YAML 1.1 meanings, the last duplicate wins, no tag is ever constructed.

Read from parser events, so that nothing is recursive and aliases stay shared.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from advisor.documents import paths
from advisor.documents.leaves import MAX_DEPTH, Leaves, Parsed, syntax_error

if TYPE_CHECKING:
    from advisor.model import JsonScalar

MAX_EXPANDED = 1_000_000
"""Largest number of values a document may have once its aliases are written out."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_COMMENT_AFTER = re.compile(r"[ \t,\]}]*[ \t]#([^\r\n]*)")
_COMMENT_LINE = re.compile(r"[ \t]*#([^\r\n]*)\r?\n")
_PROPERTIES = re.compile(r"(?:[&!][^\s]*(?:\s|#[^\n]*\n)*)+")
_CORE = "tag:yaml.org,2002:"
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_READERS = {
    "null": SafeConstructor.construct_yaml_null,
    "bool": SafeConstructor.construct_yaml_bool,
    "int": SafeConstructor.construct_yaml_int,
    "float": SafeConstructor.construct_yaml_float,
}
_constructor = SafeConstructor()


@dataclass(slots=True)
class _Frame:
    """An open mapping or list; `size` counts its values with aliases written out."""

    path: str
    is_list: bool
    anchor: str | None
    items: list[Any] = field(default_factory=list)
    pairs: dict[Any, Any] = field(default_factory=dict)
    merged: list[dict[Any, Any]] = field(default_factory=list)
    has_key: bool = False
    key: Any = None
    merging: bool = False
    place: str = ""
    began: int = 0
    seen: dict[Any, tuple[int, int]] = field(default_factory=dict)
    size: int = 1


@dataclass(frozen=True, slots=True)
class _Anchor:
    path: str
    value: Any
    size: int


def parse(text: str, name: str, bom: int) -> Parsed:
    """Raises ConfigSyntaxError with line and column."""
    reader = _Reader(text, name)
    try:
        reader.run()
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        said = " ".join(part for part in (problem.context, problem.problem) if part)
        raise syntax_error(name, line, column, f"not valid YAML: {said}") from problem
    except yaml.reader.ReaderError as problem:
        line = text.count("\n", 0, problem.position) + 1
        raise syntax_error(name, line, 1, f"not valid YAML: {problem.reason}") from problem
    documents = reader.documents
    data = None if not documents else documents[0] if len(documents) == 1 else documents
    return reader.leaves.parsed(data, bom)


def spell(value: JsonScalar, old: str | None) -> str:
    """`value` in YAML that 1.1 and 1.2 loaders read alike, quoted as `old` was."""
    quote = old[:1] if old and old[:1] in "'\"" else ""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif value is None:
        text = "null"
    elif isinstance(value, str):
        text = _spell_text(value, quote)
    else:
        text = json.dumps(value)
    return text if old != "" else f" {text}"


def _spell_text(value: str, quote: str) -> str:
    if quote == '"' or not value.isprintable():
        return json.dumps(value, ensure_ascii=False)
    if quote == "'" or not _PLAIN_TEXT.fullmatch(value) or _retyped(value):
        return "'" + value.replace("'", "''") + "'"
    return value


_PLAIN_TEXT = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+@=-]*(?: [A-Za-z0-9_./+@=-]+)*")
_NUMBER_12 = re.compile(r"[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?|0o[0-7]+|0x[0-9a-fA-F]+")


def _retyped(value: str) -> bool:
    """Whether some loader reads the plain text as something other than a string."""
    plain = _implicit_tag(value) == "str"
    return not plain or value.lower() in ("y", "n") or bool(_NUMBER_12.fullmatch(value))


def _implicit_tag(text: str) -> str:
    table = Resolver.yaml_implicit_resolvers
    for tag, pattern in (*table.get(text[:1], ()), *table.get(None, ())):
        if pattern.match(text):
            return str(tag).removeprefix(_CORE)
    return "str"


class _Reader:
    """One pass over the parser's events."""

    def __init__(self, text: str, name: str) -> None:
        self.leaves = Leaves(text, _COMMENT_AFTER, _COMMENT_LINE)
        self.documents: list[Any] = []
        self._text = text
        self._name = name
        self._stack: list[_Frame] = []
        self._anchors: dict[str, _Anchor] = {}
        self._open: set[str] = set()
        self._root = ""

    def run(self) -> None:
        loader = _LOADER(self._text)
        trace = self.leaves.trace
        try:
            while (event := loader.get_event()) is not None:
                kind = type(event)
                if kind is yaml.ScalarEvent:
                    trace.append((event.anchor, event.tag, event.implicit[0], event.value))
                    self._scalar(event)
                elif kind is yaml.AliasEvent:
                    trace.append(("*", event.anchor))
                    self._alias(event)
                elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                    trace.append((kind.__name__, event.anchor, event.tag))
                    self._enter(event, is_list=kind is yaml.SequenceStartEvent)
                elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                    trace.append(kind.__name__)
                    self._leave(event)
                elif kind is yaml.DocumentStartEvent:
                    trace.append("---")
                    self._anchors = {}
                    self._begin_document(loader)
        finally:
            loader.dispose()

    def _begin_document(self, loader: Any) -> None:
        del loader
        if self.documents:
            self.leaves.notes.append("several YAML documents in one file")
        self._root = ""

    def _error(self, event: Any, problem: str) -> Exception:
        mark = event.start_mark
        return syntax_error(self._name, mark.line + 1, mark.column + 1, problem)

    def _meaning(self, event: Any) -> tuple[JsonScalar, str | None]:
        """The loader's value of a scalar, and why it cannot be edited."""
        text = str(event.value)
        tag, why = event.tag, None
        if tag is None or tag == "!":
            tag = _implicit_tag(text) if event.implicit[0] else "str"
            if tag in ("int", "float") and _SEXAGESIMAL.fullmatch(text):
                why = "a base-60 number to YAML 1.1, plain text to other loaders"
        elif tag.startswith(_CORE):
            tag = tag.removeprefix(_CORE)
        if event.style in ("|", ">"):
            why = "it is a block of text"
        if tag in _READERS:
            node = yaml.ScalarNode(tag, text)
            try:
                return _READERS[tag](_constructor, node), why
            except (ValueError, KeyError, IndexError, OverflowError) as problem:
                raise self._error(event, f"{text!r} is no {tag}") from problem
        if tag not in ("str", "timestamp", "merge", "value", "binary"):
            why = f"its tag {event.tag} gives it a meaning of its own"
        return text, why

    def _scalar(self, event: Any) -> None:
        value, why = self._meaning(event)
        frame = self._stack[-1] if self._stack else None
        if frame and not frame.is_list and not frame.has_key:
            merging = value == "<<" and event.implicit[0] and event.tag is None
            self._key(event, frame, value, str(event.value), merging=merging)
            return
        start, end = event.start_mark.index, event.end_mark.index
        if event.anchor or event.tag:
            properties = _PROPERTIES.match(self._text, start, end)
            start = properties.end() if properties else start
            if not event.value and event.style not in ("'", '"'):
                end = start = len(self._text[:end].rstrip()) if properties else end
        path = self._place(frame)
        self.leaves.add(path, value, start, end, why)
        if event.anchor:
            self._anchors[event.anchor] = _Anchor(path, value, 1)
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
        if frame and not frame.is_list and not frame.has_key:
            self._key(event, frame, anchor.value, str(anchor.value), merging=False)
            return
        path = self._place(frame)
        self.leaves.aliases[path] = anchor.path
        if not isinstance(anchor.value, (dict, list)):
            start, end = event.start_mark.index, event.end_mark.index
            why = f"it repeats {anchor.path}"
            self.leaves.add(path, anchor.value, start, end, why)
        self._value(event, anchor.value, anchor.size)

    def _enter(self, event: Any, *, is_list: bool) -> None:
        frame = self._stack[-1] if self._stack else None
        if frame and not frame.is_list and not frame.has_key:
            raise self._error(event, "a list or a mapping stands where a key should be")
        if len(self._stack) >= MAX_DEPTH:
            raise self._error(event, f"nested more than {MAX_DEPTH} levels deep")
        self._stack.append(_Frame(self._place(frame), is_list, event.anchor))
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
            self._anchors[frame.anchor] = _Anchor(frame.path, value, frame.size)
        self._value(event, value, frame.size)

    def _key(self, event: Any, frame: _Frame, key: Any, text: str, *, merging: bool) -> None:
        if isinstance(key, (dict, list)):
            raise self._error(event, "a list or a mapping stands where a key should be")
        frame.has_key, frame.key, frame.merging = True, key, merging
        frame.place = paths.member(frame.path, text)
        frame.began = self.leaves.mark()
        if key in frame.seen and not merging:
            self.leaves.drop(*frame.seen[key])
            line = event.start_mark.line + 1
            self.leaves.notes.append(
                f"line {line}: {frame.place} is written again; the last one counts"
            )

    def _place(self, frame: _Frame | None) -> str:
        """Path of the value that begins now."""
        if frame is None:
            return self._root
        return paths.item(frame.path, len(frame.items)) if frame.is_list else frame.place

    def _value(self, event: Any, value: Any, size: int) -> None:
        """A value ended: hand it to its holder."""
        if not self._stack:
            self.documents.append(value)
            return
        frame = self._stack[-1]
        frame.size += size
        if frame.size > MAX_EXPANDED:
            problem = f"its aliases expand to more than {MAX_EXPANDED:,} values"
            raise self._error(event, problem)
        if frame.is_list:
            frame.items.append(value)
            return
        if frame.merging:
            several = value if isinstance(value, list) else [value]
            if not all(isinstance(mapping, dict) for mapping in several):
                raise self._error(event, "<< needs a mapping or a list of mappings")
            frame.merged = [*frame.merged, *reversed(several)]
        else:
            frame.pairs[frame.key] = value
        frame.seen[frame.key] = (frame.began, self.leaves.mark())
        frame.has_key = False
