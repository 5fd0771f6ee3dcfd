"""Missing loader arguments of a config's mappings.

A DataLoader would take them from it.

Only whole mappings of such arguments, as those that programs pass on as `DataLoader(**args)`.
Whether this one is passed on is for a run to show.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from advisor.config import Absent
from advisor.knobs.registry import LOADER_ARGUMENTS
from advisor.knobs.tree import parts_of

if TYPE_CHECKING:
    from advisor.config import Document
    from advisor.model import JsonScalar

DEFAULTS: dict[str, JsonScalar] = {each.kind: each.default for each in LOADER_ARGUMENTS}
"""Arguments that may be added, and their values without that."""
TAKEN = {
    *DEFAULTS,
    *("batch_size", "shuffle", "drop_last", "timeout", "in_order"),
    *("multiprocessing_context", "pin_memory_device"),
}
"""Further keys that such a mapping may hold."""
SIGNS = {"batch_size", "num_workers"}
SOURCE = "that of DataLoader"


def with_absent(document: Document) -> Document:
    """Add absent loader arguments to `document`."""
    found = []
    for members in mappings(document).values():
        if not SIGNS & members.keys() or not members.keys() <= TAKEN:
            continue
        beside = list(members.values())[-1]
        prefix = beside.removesuffix(str(parts_of(beside)[-1]))
        found += [
            Absent(path=f"{prefix}{key}", beside=beside, key=key, default=default, source=SOURCE)
            for key, default in DEFAULTS.items()
            if key not in members
        ]
    return replace(document, absent=tuple(found))


def mappings(document: Document) -> dict[str, dict[str, str]]:
    """Mappings of single values, with keys and paths."""
    found: dict[str, dict[str, str]] = {}
    leaves = document.parsed.leaves.values()
    for leaf in leaves:
        if leaf.key is not None:
            found.setdefault(leaf.parent, {})[str(parts_of(leaf.path)[-1])] = leaf.path
    nested = {leaf.parent for leaf in leaves}
    return {
        parent: members
        for parent, members in found.items()
        if not any(other.startswith((f"{parent}.", f"{parent}[")) for other in nested)
    }
