"""Replaced stretches of a document's bytes, and whether only they changed what it means. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.config import argv, jsonc, spelling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.config.leaves import Leaf, Parsed
    from advisor.model import Span

_EDITED = object()
"""In a trace: any value may stand there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One replaced stretch of bytes: `span` lies in the document as it was read."""

    path: str
    span: Span
    old: bytes
    new: bytes


def spliced(raw: bytes, edits: Sequence[Edit]) -> bytes:
    """The file with `edits`, which are in file order, made."""
    pieces, done = [], 0
    for edit in edits:
        pieces += [raw[done : edit.span.start], edit.new]
        done = edit.span.end
    return b"".join([*pieces, raw[done:]])


def only_edited(before: Parsed, after: Parsed, edits: Sequence[Edit]) -> bool:
    """Whether no more than the edited values differ: in the trace only their atoms, and of the
    leaves only flags that were left out are gone."""
    gone = {
        leaf.path
        for edit in edits
        if (leaf := before.leaves[edit.path]).bare and not edit.new and leaf.option is None
    }
    expected = _expected(before, edits)
    return (
        before.leaves.keys() - gone == after.leaves.keys()
        and len(expected) == len(after.trace)
        and all(
            wanted is _EDITED or wanted == atom
            for wanted, atom in zip(expected, after.trace, strict=True)
        )
    )


def others_stay(before: Parsed, after: Parsed, edits: Sequence[Edit]) -> bool:
    """Whether the leaves beside the edited ones keep their values: a word that was added to a
    command may not become the value of another flag."""
    own = {edit.path for edit in edits}
    return all(
        spelling.is_same(leaf.value, after.leaves[path].value)
        for path, leaf in before.leaves.items()
        if path not in own and path in after.leaves
    )


def only_added(before: Parsed, after: Parsed, beside: Leaf, added: str) -> bool:
    """Whether the trace gained nothing but the key and value at `added`, right behind `beside`."""
    behind, more = beside.atom + 1, len(after.trace) - len(before.trace)
    new = after.leaves.get(added)
    return (
        new is not None
        and new.atom == beside.atom + more
        and before.trace[:behind] == after.trace[:behind]
        and before.trace[behind:] == after.trace[behind + more :]
        and before.leaves.keys() == after.leaves.keys() - {added}
    )


def is_cut_alike(before: Parsed, after: Parsed) -> bool:
    """Whether a loader that cuts lines at `//`, if it read `before` right, reads `after` right."""
    was_read = jsonc.naive_meaning(before.text) == repr(before.data)
    return not was_read or jsonc.naive_meaning(after.text) == repr(after.data)


def _expected(before: Parsed, edits: Sequence[Edit]) -> list[object]:
    """The trace after `edits`, with a wildcard for every value that was replaced."""
    replaced: dict[int, Edit] = {}
    added: dict[int, list[object]] = {}
    for edit in edits:
        leaf = before.leaves[edit.path]
        if leaf.given:
            replaced[leaf.atom] = edit
        else:
            added.setdefault(leaf.atom, []).extend(argv.split(edit.new)[1:])
    expected: list[object] = []
    for number, atom in enumerate(before.trace):
        edit_here = replaced.get(number)
        if edit_here is None:
            expected.append(atom)
        elif edit_here.new or not before.leaves[edit_here.path].bare:
            expected.append(_EDITED)
        expected += added.get(number, [])
    return expected
