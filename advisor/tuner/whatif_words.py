"""What-ifs as the words that the probe knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def of_loader(values: Mapping[str, int | bool], site: str | None) -> str:
    """`loader.num_workers=4,loader.prefetch_factor=4@train.py:88`"""
    words = ",".join(f"loader.{name}={int(value)}" for name, value in values.items())
    return words + (f"@{site}" if site else "")


def joined(whatifs: Sequence[str]) -> str | None:
    """Several what-ifs as one; those of a DataLoader are all of one line."""
    parts = [each.partition("@") for each in whatifs]
    site = next((site for _, _, site in parts if site), "")
    words = ",".join(words for words, _, _ in parts)
    return f"{words}@{site}" if site else words or None
