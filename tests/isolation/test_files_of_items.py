"""Files of items: how many there are in each format, and what the first ones hold."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from advisor.isolation import results

if TYPE_CHECKING:
    from pathlib import Path


def npy(shape: tuple[int, ...], kind: str, values: list[float]) -> bytes:
    """An array as NumPy writes it."""
    order = {"<f4": "f", "|u1": "B"}[kind]
    header = str({"descr": kind, "fortran_order": False, "shape": shape}).encode().ljust(117)
    head = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header + b"\n"
    return head + struct.pack(f"<{len(values)}{order}", *values)


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 48, 32) + b"\x08\x02"


@pytest.mark.parametrize(
    ("name", "content", "items", "first"),
    [
        ("p.jsonl", b'{"score": 0.5, "at": [1, 2]}\n{"score": 1}\n{"sco', 2, [[1, 2, 0.5], [1]]),
        ("p.csv", b"1.5,2\n3,4\n", 2, [[1.5, 2], [3, 4]]),
        ("p.tsv", b"1\t2\n", 1, [[1, 2]]),
        ("p.npy", npy((3, 2), "<f4", [1, 2, 3, 4, 5, 6]), 3, [[1, 2], [3, 4], [5, 6]]),
        ("p.npy", npy((2,), "|u1", [7, 8]), 2, [[7], [8]]),
        ("P.PNG", PNG, 1, [[48, 32]]),
    ],
)
def test_items_are_counted_and_the_first_ones_read(
    tmp_path: Path, name: str, content: bytes, items: int, first: list[list[float]]
) -> None:
    """A last line that is not whole yet is no item."""
    (tmp_path / name).write_bytes(content)
    with (tmp_path / name).open("rb") as file:
        found = results.look_into(file.fileno(), name)
    assert found == {"items": items, "first": first, "bytes": len(content)}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.pt", b"PK\x03\x04"),
        ("empty.jsonl", b""),
        ("p.jsonl", b"no json\n"),
        ("p.npy", b"\x93NUMPY\x01\x00\xff\xff{'descr'"),
        ("p.npy", npy((), "<f4", [1])),
        ("p.npy", b""),
    ],
)
def test_what_is_no_file_of_items_is_none(tmp_path: Path, name: str, content: bytes) -> None:
    """Whatever the user's program wrote, reading it is no error."""
    (tmp_path / name).write_bytes(content)
    with (tmp_path / name).open("rb") as file:
        assert results.look_into(file.fileno(), name) is None


def test_texts_are_not_kept(tmp_path: Path) -> None:
    """They are compared only, so a digest stands for each."""
    (tmp_path / "p.jsonl").write_text('{"text": "secret"}\n{"text": "secret"}\n{"text": "other"}\n')
    with (tmp_path / "p.jsonl").open("rb") as file:
        found = results.look_into(file.fileno(), "p.jsonl")
    assert found is not None
    one, same, other = found["first"]
    assert one == same != other
    assert "secret" not in str(found)
