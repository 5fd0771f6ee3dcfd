"""Files of items that a program left: how many there are, and what the first ones hold.

A table of formats; what is in none of them is not looked into. Texts are kept as digests: they are
only ever compared.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import json
import math
import os
import struct
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

FIRST = 16
"""Items of a file that are looked into."""
VALUES = 64
"""Values of an item that are."""
LARGEST_BYTES = 256 << 20
LINE_BYTES = 1 << 20

Value = float | str
Found = tuple[int, list[list[Value]]]
"""Items, and the values of the first ones."""

_NUMPY = {
    "<f2": "e", "<f4": "f", "<f8": "d", "|b1": "?", "|i1": "b", "|u1": "B",
    "<i2": "h", "<u2": "H", "<i4": "i", "<u4": "I", "<i8": "q", "<u8": "Q",
}  # fmt: skip
"""Kinds of numbers, as `struct` calls them."""


def look_into(descriptor: int, name: str) -> dict[str, Any] | None:
    """`items`, `first` and `bytes` of an open file called `name`; None where it is no file of
    items. Never raises for what it holds."""
    reader = FORMATS.get(os.path.splitext(name)[1].lower())
    size = os.fstat(descriptor).st_size
    if reader is None or not 0 < size <= LARGEST_BYTES:
        return None
    try:
        with open(descriptor, "rb", closefd=False) as file:
            items, first = reader(file)
    except (ValueError, SyntaxError, OSError, struct.error, KeyError, TypeError, csv.Error):
        return None
    return {"items": items, "first": first, "bytes": size}


def _json_lines(file: BinaryIO) -> Found:
    lines, first = _lines(file)
    return lines, [_values(_leaves(json.loads(line))) for line in first]


def _rows(delimiter: str) -> Callable[[BinaryIO], Found]:
    def rows(file: BinaryIO) -> Found:
        lines, first = _lines(file)
        read = csv.reader((line.decode("utf-8", "replace") for line in first), delimiter=delimiter)
        return lines, [_values(map(_number, row)) for row in read]

    return rows


def _array(file: BinaryIO) -> Found:
    """NumPy's own format: the first dimension counts the items."""
    if file.read(6) != b"\x93NUMPY":
        raise ValueError
    major = file.read(2)[0]
    (length,) = (
        struct.unpack("<H", file.read(2)) if major == 1 else struct.unpack("<I", file.read(4))
    )
    header = ast.literal_eval(file.read(length).decode("latin-1"))
    shape, kind = header["shape"], _NUMPY[header["descr"]]
    if not shape or header["fortran_order"]:
        raise ValueError
    width = math.prod(shape[1:])
    size = struct.calcsize(f"<{kind}")
    start, first = file.tell(), []
    for row in range(min(shape[0], FIRST)):
        file.seek(start + row * width * size)
        many = min(width, VALUES)
        first.append(_values(struct.unpack(f"<{many}{kind}", file.read(many * size))))
    return shape[0], first


def _picture(file: BinaryIO) -> Found:
    """One item; of a PNG its width and height."""
    head = file.read(24)
    return 1, [_values(struct.unpack(">II", head[16:]))] if head[12:16] == b"IHDR" else []


FORMATS: dict[str, Callable[[BinaryIO], Found]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".jsonlines": _json_lines,
    ".csv": _rows(","),
    ".tsv": _rows("\t"),
    ".npy": _array,
    ".png": _picture,
}


def _lines(file: BinaryIO) -> tuple[int, list[bytes]]:
    """How many whole lines there are, and the first of them."""
    first: list[bytes] = []
    while len(first) < FIRST and (line := file.readline(LINE_BYTES)).endswith(b"\n"):
        first.append(line)
    many = len(first)
    while chunk := file.read(1 << 20):
        many += chunk.count(b"\n")
    return many, first


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        for key in sorted(value):
            yield from _leaves(value[key])
    elif isinstance(value, list):
        for entry in value:
            yield from _leaves(entry)
    else:
        yield value


def _values(leaves: Iterable[object]) -> list[Value]:
    found: list[Value] = []
    for leaf in leaves:
        if isinstance(leaf, (int, float)) and math.isfinite(leaf):
            found.append(float(leaf))
        else:
            text = str(leaf).encode("utf-8", "surrogatepass")
            found.append(hashlib.blake2b(text, digest_size=8).hexdigest())
        if len(found) == VALUES:
            break
    return found


def _number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text
