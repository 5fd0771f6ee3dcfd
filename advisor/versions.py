"""Originals of the configs that were rewritten, and the way back.

Each rewrite keeps the bytes it replaced and the spans it edited in the state folder, so that
`gpu-advisor revert` gives the original back byte for byte, or, in a file that was edited since,
puts back only the values that are still ours.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from advisor import documents
from advisor.errors import RevertConflictError

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.model import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One rewrite of one config."""

    number: int
    config: str
    original: bytes
    tuned: bytes
    changes: tuple[dict[str, Any], ...]
    """Path, old value, new value, and how the old value was spelled."""


class Versions:
    """The rewrites of one config, oldest first."""

    def __init__(self, state: Path, config: Path) -> None:
        real = str(config.resolve())
        self._config = config
        self._folder = state / "versions" / hashlib.sha256(real.encode()).hexdigest()[:16]

    def all(self) -> list[Version]:
        """Rewrites that were not reverted yet."""
        found = []
        for entry in sorted(self._folder.glob("*.json")):
            facts = json.loads(entry.read_text(encoding="utf-8"))
            found.append(
                Version(
                    number=int(entry.stem),
                    config=facts["config"],
                    original=entry.with_suffix(".original").read_bytes(),
                    tuned=entry.with_suffix(".tuned").read_bytes(),
                    changes=tuple(facts["changes"]),
                )
            )
        return found

    def keep(self, original: documents.Document, tuned: bytes, changes: list[Change]) -> None:
        """Remember a rewrite; called before the config is replaced."""
        self._folder.mkdir(parents=True, exist_ok=True)
        kept = self.all()
        number = kept[-1].number + 1 if kept else 1
        stem = self._folder / f"{number:04d}"
        stem.with_suffix(".original").write_bytes(original.raw)
        stem.with_suffix(".tuned").write_bytes(tuned)
        facts = {
            "config": str(self._config.resolve()),
            "created": time.time(),
            "changes": [
                {"path": c.path, "old": c.old, "new": c.new, "text": original.scalars[c.path].text}
                for c in changes
            ],
        }
        stem.with_suffix(".json").write_text(json.dumps(facts, indent=2), encoding="utf-8")

    def forget(self, version: Version) -> None:
        """Drop a rewrite that was undone."""
        for suffix in (".json", ".original", ".tuned"):
            (self._folder / f"{version.number:04d}").with_suffix(suffix).unlink(missing_ok=True)

    # The original's quality is measured once and outlives rewrites, so that a tolerance is always
    # taken from the original and never adds up over repeated calls.

    def quality_reference(self, measure_key: str) -> dict[str, float] | None:
        """The original's quality kept under `measure_key`, if the config descends from it."""
        path = self._folder / "quality" / f"{measure_key}.json"
        if not self.all() or not path.is_file():
            return None
        kept: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
        return kept

    def keep_quality_reference(self, measure_key: str, values: dict[str, float]) -> None:
        """Remember the original's quality."""
        path = self._folder / "quality" / f"{measure_key}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values), encoding="utf-8")


def undo(version: Version, config: Path) -> bytes:
    """Bytes of `config` with `version` taken back.

    Byte for byte the original if the file was not touched since; else only the spans that still
    hold our values are put back. Raises RevertConflictError with a diff when one does not.
    """
    current = config.read_bytes()
    if current == version.tuned:
        return version.original
    document = documents.read(config)
    spans = []
    for change in version.changes:
        scalar = document.scalars.get(change["path"])
        if scalar is None or scalar.value != change["new"]:
            shown = "is gone" if scalar is None else f"is now {scalar.text}"
            msg = (
                f"{config} was edited since it was tuned: {change['path']} {shown}, we wrote"
                f" {json.dumps(change['new'])}. Nothing was changed. Put it back by hand:\n"
                + diff(version.tuned, current, str(config))
            )
            raise RevertConflictError(msg)
        spans.append((scalar.span, change["text"].encode()))
    for span, text in sorted(spans, key=lambda pair: -pair[0].start):
        current = current[: span.start] + text + current[span.end :]
    documents.parse(current, document.format, str(config))
    return current


def diff(old: bytes, new: bytes, name: str) -> str:
    """Unified diff of two versions of a text file, as text."""
    before, after = (
        side.decode("utf-8", errors="replace").splitlines(keepends=True) for side in (old, new)
    )
    lines = difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", n=2)
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)
