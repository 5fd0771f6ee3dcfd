"""Values that live elsewhere: at another path, or in another file."""

from __future__ import annotations

import re

from advisor.config import Document
from advisor.config.leaves import COMPUTED
from advisor.knobs.catalogue import catalogue
from advisor.knobs.tree import Leaf, parts_of, path_of

_REFERENCE = re.compile(r"\$\{|\A<[^<>\s]+>|\A\$?@[\w#]|\A\$[A-Za-z_]\w*\Z")
_PLAIN_REFERENCE = re.compile(r"\$\{([\w./\[\]-]+)\}|<([\w.\[\]-]+)>|\$?@([\w#]+)|\$([A-Za-z_]\w*)")


def elsewhere(document: Document, leaf: Leaf) -> tuple[str, ...] | None:
    """Reason and paths of a value that lives elsewhere, or None."""
    if repeated := document.aliases.get(leaf.scalar.path):
        return f"repeats {repeated}: change it there", leaf.path, repeated
    why = leaf.scalar.why
    if leaf.value is None and why and why.startswith(COMPUTED):
        return why, leaf.path
    if not isinstance(leaf.value, str) or not _REFERENCE.search(leaf.value):
        return None
    if found := target(document, leaf.value):
        return f"{leaf.value}: the value lives at {found}", leaf.path, found
    return f"{leaf.value}: it is computed elsewhere", leaf.path


def target(document: Document, text: object) -> str | None:
    """Target of a plain reference, if in this document.

    Such as `${a.b}`, `<a.b>` or `@a#b`.
    """
    found = _PLAIN_REFERENCE.fullmatch(text.strip()) if isinstance(text, str) else None
    if not found:
        return None
    path = path_of(parts_of(next(filter(None, found.groups())).replace("#", ".")))
    return path if path in document.scalars else None


def files_named(leaf: Leaf) -> list[str]:
    """Files that `leaf` names as holding more values."""
    values = leaf.value if isinstance(leaf.value, tuple) else (leaf.value,)
    texts = [value for value in values if isinstance(value, str)]
    if leaf.path.startswith("defaults[") and "hydra" not in leaf.key:  # a Hydra config group
        group = leaf.key.removeprefix("override ").strip("/").split("@")[0]
        return [f"{group}/{text}.yaml" for text in texts if text]
    if not catalogue().names["references"].fullmatch(leaf.name):
        return []
    suffixes = tuple(catalogue().table["references"]["suffixes"])
    return [text for text in texts if text.endswith(suffixes)]
