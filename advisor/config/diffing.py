"""Diff of two versions of a config, secrets masked."""

from __future__ import annotations

import difflib

from advisor import masking
from advisor.config.document import Document


def masked_diff(before: Document, after: Document, name: str) -> str:
    """Unified diff of two configs with masked secrets."""
    old, new = (
        masking.mask_text(_masked(side).decode("utf-8", errors="replace")).splitlines(keepends=True)
        for side in (before, after)
    )
    lines = difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", n=2)
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def _masked(document: Document) -> bytes:
    """Bytes of the document with masked secrets."""
    content = document.raw
    scalars = sorted(document.scalars.values(), key=lambda scalar: -scalar.span.start)
    for scalar in scalars:
        names = scalar.path.replace("[", ".").split(".")
        if any(masking.is_secret(name, scalar.value) for name in names):
            start, end = scalar.span.start, scalar.span.end
            first = content[start : start + 1]
            quote = first if first in {b'"', b"'"} else b""
            mask = quote + masking.MASK.encode() + quote
            content = content[:start] + mask + content[end:]
    return content
