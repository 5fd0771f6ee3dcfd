"""Files of items that a program left: how many there are, and what the first ones hold.

A table of formats; what is in none of them is not looked into. Texts are kept as digests: they are
only ever compared. Of what cannot be read by the standard library alone, all is one digest.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import hashlib
import json
import math
import os
import struct
import wave
import zipfile
import zlib
from array import array
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from advisor.sandbox import pictures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import IO

FIRST = 16
"""Items of a file that are looked into."""
VALUES = 64
"""Values of an item that are."""
LARGEST_BYTES = 256 << 20
LINE_BYTES = 1 << 20
JSON_BYTES = 16 << 20
"""A larger document is not read: it has to be read whole."""
ITEM_BYTES = 256 << 10
"""Of one row of an array, and of a sound."""
DIGESTED_BYTES = 8 << 20
"""Of what cannot be read otherwise."""

Value = float | str


class Found(NamedTuple):
    """What a file holds. No dataclass: each guardian would import what makes those, for 10 ms."""

    items: int
    first: list[list[Value]]
    """Values of the first items."""
    sampled: bool = False
    """They are samples, or means, of what somebody looks at or listens to."""
    digest: str | None = None
    """Of all of it, where that is everything that can be told."""


_NUMPY = {
    "<f2": "e", "<f4": "f", "<f8": "d", "|b1": "?", "|i1": "b", "|u1": "B",
    "<i2": "h", "<u2": "H", "<i4": "i", "<u4": "I", "<i8": "q", "<u8": "Q",
}  # fmt: skip
"""Kinds of numbers, as `struct` calls them."""
BROKEN = (
    ValueError, SyntaxError, AttributeError, KeyError, TypeError, OSError, EOFError, RecursionError,
    NotImplementedError, struct.error, csv.Error, wave.Error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What readers raise for a file that is not whole, or not what it is called."""


def look_into(descriptor: int, name: str) -> dict[str, Any] | None:
    """Fields of `Found`, and `bytes`, of an open file called `name`; None where it is no file of
    items. Never raises for what it holds."""
    reader = FORMATS.get(os.path.splitext(name)[1].lower())
    size = os.fstat(descriptor).st_size
    if reader is None or not 0 < size <= LARGEST_BYTES:
        return None
    try:
        with open(descriptor, "rb", closefd=False) as file:
            found = reader(file)
    except BROKEN:
        return None
    return {**found._asdict(), "bytes": size}


# --- text ---------------------------------------------------------------------------------


def _json_lines(file: BinaryIO) -> Found:
    lines, first = _lines(file)
    return Found(items=lines, first=[_values(_leaves(json.loads(line))) for line in first])


def _json(file: BinaryIO) -> Found:
    """A list of items, or the longest one that lies in a mapping; a mapping of settings or of
    figures is no file of items."""
    if os.fstat(file.fileno()).st_size > JSON_BYTES:
        raise ValueError
    held = json.load(file)
    lists = [held] if isinstance(held, list) else list(held.values())
    items: list[Any] = max((each for each in lists if isinstance(each, list)), key=len)
    return Found(items=len(items), first=[_values(_leaves(each)) for each in items[:FIRST]])


def _rows(delimiter: str) -> Callable[[BinaryIO], Found]:
    def rows(file: BinaryIO) -> Found:
        lines, first = _lines(file)
        read = csv.reader((line.decode("utf-8", "replace") for line in first), delimiter=delimiter)
        return Found(items=lines, first=[_values(map(_number, row)) for row in read])

    return rows


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


# --- numbers ------------------------------------------------------------------------------


def _array(file: IO[bytes]) -> Found:
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
    many = min(width, ITEM_BYTES // size)
    first = []
    for _ in range(min(shape[0], FIRST)):
        row = struct.unpack(f"<{many}{kind}", file.read(many * size))
        first.append(_values(row[:: max(1, many // VALUES)]))
        file.seek((width - many) * size, os.SEEK_CUR)
    return Found(items=shape[0], first=first, sampled=many > VALUES)


def _arrays(file: BinaryIO) -> Found:
    """Several of them in one file: that of the most rows."""
    found = []
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if member.filename.endswith(".npy") and member.file_size <= LARGEST_BYTES:
                with archive.open(member) as inside, contextlib.suppress(ValueError, KeyError):
                    found.append(_array(inside))
    return max(found, key=lambda each: each.items)


# --- what is looked at, or listened to ----------------------------------------------------


def _picture(file: BinaryIO) -> Found:
    size, fields = pictures.png(file)
    return Found(items=1, first=[[*_values([size]), *fields]], sampled=True)


def _jpeg(file: BinaryIO) -> Found:
    size = pictures.jpeg_size(file)
    file.seek(0)
    return Found(items=1, first=[_values([size])], digest=_digest(file))


def _sound(file: BinaryIO) -> Found:
    """The mean loudness of each part of its beginning, silence as 0 and the loudest as 1."""
    with wave.open(file) as sound:
        rate, wide, channels = sound.getframerate(), sound.getsampwidth(), sound.getnchannels()
        frames = sound.readframes(ITEM_BYTES // (wide * channels))
        told = f"{rate} Hz, {wide} bytes, {channels} channels, {sound.getnframes()} frames"
    loud = [abs(sample) / 2**15 for sample in array("h", frames)] if wide == 2 else []
    parts = [loud[n * len(loud) // VALUES : (n + 1) * len(loud) // VALUES] for n in range(VALUES)]
    means = [sum(part) / len(part) for part in parts if part]
    return Found(items=1, first=[[*_values([told]), *means]], sampled=True)


def _unread(file: BinaryIO) -> Found:
    return Found(items=1, first=[], digest=_digest(file))


def _digest(file: BinaryIO) -> str:
    return hashlib.blake2b(file.read(DIGESTED_BYTES), digest_size=8).hexdigest()


FORMATS: dict[str, Callable[[BinaryIO], Found]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".jsonlines": _json_lines,
    ".csv": _rows(","),
    ".tsv": _rows("\t"),
    ".json": _json,
    ".npy": _array,
    ".npz": _arrays,
    ".png": _picture,
    ".jpg": _jpeg,
    ".jpeg": _jpeg,
    ".wav": _sound,
    **dict.fromkeys((".tif", ".tiff", ".webp", ".exr", ".bmp", ".gif", ".flac", ".mp3"), _unread),
}
