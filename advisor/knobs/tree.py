"""Tree of leaves with their surroundings, and what was found in it."""

import functools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from advisor.config import spelling
from advisor.config.leaves import Scalar
from advisor.model import FalseMatch, JsonScalar, Knob, KnobConstraint

Parts = tuple[str | int, ...]
T = TypeVar("T")

_PART = re.compile(r'\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]|([^.\[\]]+)')


@dataclass(frozen=True, slots=True)
class Leaf:
    """Scalar or list of scalars, with its surroundings."""

    path: str
    key: str
    """The last key as written."""
    name: str
    """Canonical: `IMS_PER_BATCH` is `ims_per_batch`, `AdamW.lr` is `lr`."""
    ancestors: tuple[str, ...]
    """Canonical names of keys above, nearest first, without list indices."""
    words: frozenset[str]
    """Names of the ancestors, and their words."""
    keys: frozenset[str]
    """Canonical names of all keys of its mapping."""
    mapping: str
    """Path of its mapping; empty at the root."""
    value: JsonScalar | tuple[JsonScalar, ...]
    scalar: Scalar
    """The scalar, or a list's first element."""
    comment: str | None
    """Comment beside it, on one line; of a list, its first element's."""


@functools.lru_cache(maxsize=4096)
def canonical(key: str) -> str:
    """Last part of a key: lower-case words, joined by `_`."""
    return _snake(_scoped(key)[-1])


def _scoped(key: str) -> list[str]:
    """Parts of `train/AdamW.lr`, `train:lr` or `train#lr`; others are one part."""
    bare = key.strip().strip("-")
    return re.split(r"[./#:]", bare) if re.fullmatch(r"[\w./#:+-]+[\w+-]", bare) else [bare]


def _snake(text: str) -> str:
    text = re.sub(r"([a-z0-9])([A-Z][a-z]|[A-Z]+$)", r"\1_\2", text)
    text = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", text)
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


@functools.lru_cache(maxsize=4096)
def words_of(name: str) -> frozenset[str]:
    return frozenset({name, *name.split("_")})


def parts_of(path: str) -> Parts:
    """`a.b[0]["odd.key"]` to ("a", "b", 0, "odd.key")."""
    return tuple(
        int(index) if index else plain or json.loads(f'"{quoted}"')
        for index, quoted, plain in _PART.findall(path)
    )


def leaves(scalars: Mapping[str, Scalar]) -> list[Leaf]:
    """Leaves of a document; a list of scalars is one leaf."""
    groups: dict[Parts, list[Scalar]] = {}
    lists: set[Parts] = set()
    children: dict[Parts, set[str]] = {}
    for scalar in scalars.values():
        parts = parts_of(scalar.path)
        for depth, part in enumerate(parts):
            if isinstance(part, str):
                children.setdefault(parts[:depth], set()).add(canonical(part))
        while parts and isinstance(parts[-1], int):
            parts = parts[:-1]
            lists.add(parts)
        if parts:
            groups.setdefault(parts, []).append(scalar)
    names = {mapping: frozenset(keys) for mapping, keys in children.items()}
    return [_leaf(parts, group, parts in lists, names) for parts, group in groups.items()]


def _leaf(
    parts: Parts,
    scalars: list[Scalar],
    is_list: bool,
    names: Mapping[Parts, frozenset[str]],
) -> Leaf:
    key = str(parts[-1])
    scope = [_snake(part) for part in _scoped(key)[:-1]]
    above = [canonical(part) for part in parts[:-1] if isinstance(part, str)] + scope
    ancestors = tuple(name for name in reversed(above) if name)
    name = canonical(key)
    return Leaf(
        path=path_of(parts) if is_list else scalars[0].path,
        key=key,
        name=name,
        ancestors=ancestors,
        words=frozenset(word for ancestor in ancestors for word in words_of(ancestor)),
        keys=names[parts[:-1]],
        mapping=path_of(parts[:-1]),
        value=tuple(s.value for s in scalars) if is_list else scalars[0].value,
        scalar=scalars[0],
        comment=" ".join((scalars[0].comment or "").split()) or None,
    )


def path_of(parts: Parts) -> str:
    return functools.reduce(spelling.member, parts, "")


def number_of(value: object) -> float | None:
    """Finite number, also from text; else None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def plain_count(value: T) -> T | int:
    """Whole number that `"16"` and `16.0` stand for; any other value as it is.

    A document writes a changed one in the spelling of the old one.
    """
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value):
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Knobs of one document, and their surroundings."""

    document: str
    """Path as the user wrote it, or `command line`."""
    knobs: tuple[Knob, ...]
    links: tuple[KnobConstraint, ...]
    traps: tuple[FalseMatch, ...]
    outputs: tuple[str, ...]
    """Paths of scalars that name output directories."""
    files: tuple[str, ...] = ()
    """Files named as holding more values, as written."""
    notes: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    """Paths of knobs whose phase nothing in the document says: it is the usual one of the kind."""

    def knob(self, path: str) -> Knob | None:
        return next((knob for knob in self.knobs if knob.path == path), None)

    def name_of(self, path: str) -> str:
        """Shortest unique end of `path`."""
        others = [f".{knob.path}" for knob in self.knobs if knob.path != path]
        parts = path.split(".")
        ends = (".".join(parts[-count:]) for count in range(1, len(parts) + 1))
        unique_ends = (
            end for end in ends if not any(other.endswith(f".{end}") for other in others)
        )
        return next(unique_ends, path)
