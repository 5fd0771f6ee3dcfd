"""What a picture shows, as a few numbers that rounding hardly moves: PNG, by the standard library
alone. Of formats that cannot be decoded by it only the size in pixels is read.

A file that is not whole, or is no such picture, raises ValueError, KeyError or struct.error.
"""

from __future__ import annotations

import operator
import struct
import zlib
from itertools import accumulate
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

GRID = 8
"""A picture is read as the means of so many times so many fields."""
DECODED_BYTES = 128 << 10
"""Pixels that are looked at, from the top."""
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""By colour type of PNG: grey, RGB, palette, grey and alpha, RGB and alpha."""
FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
"""JPEG markers of a frame's head."""
BYTE = 0xFF


def png(file: BinaryIO) -> tuple[str, list[float]]:
    """Its size as `WIDTHxHEIGHT`, and the mean of each field of the top part, black as 0 and white
    as 1; no fields of an interlaced one.
    """
    head, packed = _parts(file)
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", head)
    size = f"{width}x{height}"
    if interlaced:
        return size, []
    pixel_bits = CHANNELS[colour] * depth
    row_bytes = (width * pixel_bits + 7) // 8
    rows = min(height, max(1, DECODED_BYTES // row_bytes))
    try:
        raw = zlib.decompressobj().decompress(packed, rows * (row_bytes + 1))
    except zlib.error as problem:
        raise ValueError from problem
    if len(raw) < rows * (row_bytes + 1):
        raise ValueError
    return size, _fields(list(_unfiltered(raw, row_bytes, max(1, pixel_bits // 8))), depth)


def _parts(file: BinaryIO) -> tuple[bytes, bytes]:
    """The head, and the first of the packed pixels, of a picture that has its end."""
    if file.read(8) != b"\x89PNG\r\n\x1a\n":
        raise ValueError
    head = packed = kind = b""
    while kind != b"IEND":
        length, kind = struct.unpack(">I4s", file.read(8))
        if kind == b"IHDR":
            head = file.read(length)
        elif kind == b"IDAT" and len(packed) <= 2 * DECODED_BYTES:
            packed += file.read(length)
        else:
            file.seek(length, 1)
        file.seek(4, 1)
    return head, packed


def _unfiltered(raw: bytes, row_bytes: int, step: int) -> Iterator[bytes]:
    """The rows as they were before PNG's filters; `step`: bytes from a pixel to the next."""
    above = bytes(row_bytes)
    for start in range(0, len(raw), row_bytes + 1):
        row = raw[start + 1 : start + 1 + row_bytes]
        above = UNDONE[raw[start]](row, above, step)
        yield above


def _plain(row: bytes, _above: bytes, _step: int) -> bytes:
    return row


def _by_left(row: bytes, _above: bytes, step: int) -> bytes:
    found = bytearray(len(row))
    for channel in range(step):
        found[channel::step] = bytes(map(BYTE.__and__, accumulate(row[channel::step])))
    return bytes(found)


def _by_above(row: bytes, above: bytes, _step: int) -> bytes:
    return bytes(map(BYTE.__and__, map(operator.add, row, above)))


def _by_mean(row: bytes, above: bytes, step: int) -> bytes:
    found = bytearray(step) + bytearray(row)
    for at, up in enumerate(above, start=step):
        found[at] = (found[at] + (found[at - step] + up) // 2) & BYTE
    return bytes(found[step:])


def _by_nearest(row: bytes, above: bytes, step: int) -> bytes:
    """Paeth's: of left, above and the corner between, what is nearest to left + above - corner."""
    found = bytearray(step) + bytearray(row)
    for at, (up, corner) in enumerate(zip(above, bytes(step) + above, strict=False), start=step):
        left = found[at - step]
        from_left, from_up = abs(up - corner), abs(left - corner)
        from_corner = abs(left + up - 2 * corner)
        if from_left <= from_up and from_left <= from_corner:
            guess = left
        else:
            guess = up if from_up <= from_corner else corner
        found[at] = (found[at] + guess) & BYTE
    return bytes(found[step:])


UNDONE = dict(enumerate((_plain, _by_left, _by_above, _by_mean, _by_nearest)))
"""What undoes a filter, by its number."""


def _fields(rows: list[bytes], depth: int) -> list[float]:
    """Means of the fields, of all channels together."""
    if depth == 16:  # the first byte says what can be seen
        rows = [row[::2] for row in rows]
    found = []
    for number in range(GRID):
        band = rows[number * len(rows) // GRID : (number + 1) * len(rows) // GRID]
        for field in range(GRID):
            low, high = (n * len(rows[0]) // GRID for n in (field, field + 1))
            total = sum(sum(row[low:high]) for row in band)
            found.append(total / BYTE / max(1, len(band) * (high - low)))
    return found


def jpeg_size(file: BinaryIO) -> str:
    """`WIDTHxHEIGHT`"""
    if file.read(2) != b"\xff\xd8":
        raise ValueError
    while True:
        start, marker, length = struct.unpack(">BBH", file.read(4))
        if start != BYTE:
            raise ValueError
        content = file.read(length - 2)
        if marker in FRAMES:
            height, width = struct.unpack(">xHH", content[:5])
            return f"{width}x{height}"
