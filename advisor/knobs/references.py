"""Leaves whose values live elsewhere: repeated, interpolated, computed, or in other files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from advisor.config.leaves import COMPUTED
from advisor.knobs.tree import Leaf, parts_of, path_of
from advisor.model import KnobConstraint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from advisor.config import Document
    from advisor.knobs.catalogue import Catalogue

_REFERENCE = re.compile(r"\$\{|\A<[^<>\s]+>|\A\$?@[\w#]|\A\$[A-Za-z_]\w*\Z")
_PLAIN_REFERENCE = re.compile(r"\$\{([\w./\[\]-]+)\}|<([\w.\[\]-]+)>|\$?@([\w#]+)|\$([A-Za-z_]\w*)")


def link(document: Document, why: str, *paths: str) -> KnobConstraint:
    """That the value at the first of `paths` is found as `why` says, at the second if there is
    one."""
    return KnobConstraint(kind="reference", document=document.name, paths=paths, why=why)


def repeats(document: Document, path: str, target: str) -> KnobConstraint:
    """That what is at `path` stands at `target` once for both."""
    return link(document, f"repeats {target}: change it there", path, target)


def reference(document: Document, leaf: Leaf) -> KnobConstraint | None:
    """Where the value of `leaf` lives, if it is no literal."""
    scalar = leaf.scalar
    repeated = document.aliases.get(scalar.path)
    if repeated:
        return repeats(document, leaf.path, repeated)
    if leaf.value is None and scalar.why and scalar.why.startswith(COMPUTED):
        return link(document, scalar.why, leaf.path)
    if isinstance(leaf.value, str) and _REFERENCE.search(leaf.value):
        target = _target(document, leaf.value)
        where = f"the value lives at {target}" if target else "it is computed elsewhere"
        paths = (leaf.path, target) if target else (leaf.path,)
        return link(document, f"{leaf.value}: {where}", *paths)
    return None


def literals_of_models(document: Document, leaves: Iterable[Leaf]) -> dict[str, str]:
    """Paths that a key inside a model refers to, and that key."""
    found = {}
    for leaf in leaves:
        if isinstance(leaf.value, str) and "model" in leaf.words:
            target = _target(document, leaf.value)
            if target:
                found[target] = leaf.path
    return found


def files(catalogue: Catalogue, leaf: Leaf) -> list[str]:
    """The files that `leaf` says more values live in."""
    values = leaf.value if isinstance(leaf.value, tuple) else (leaf.value,)
    texts = [value for value in values if isinstance(value, str)]
    if leaf.path.startswith("defaults[") and "hydra" not in leaf.key:  # a Hydra config group
        group = leaf.key.removeprefix("override ").strip("/").split("@")[0]
        return [f"{group}/{text}.yaml" for text in texts if text]
    if not catalogue.reference_names.fullmatch(leaf.name):
        return []
    return [text for text in texts if text.endswith(catalogue.reference_suffixes)]


def _target(document: Document, text: str) -> str | None:
    """The path a plain `${a.b}`, `<a.b>` or `@a#b` points to, if it is in this document."""
    found = _PLAIN_REFERENCE.fullmatch(text.strip())
    if not found:
        return None
    path = path_of(parts_of(next(filter(None, found.groups())).replace("#", ".")))
    return path if path in document.scalars else None
