"""Files of items: how many there are in each format, and what the first ones hold."""

from __future__ import annotations

import io
import struct
import wave
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from advisor.sandbox import results

if TYPE_CHECKING:
    from pathlib import Path


def npy(shape: tuple[int, ...], kind: str, values: list[float]) -> bytes:
    """An array as NumPy writes it."""
    order = {"<f4": "f", "|u1": "B"}[kind]
    header = str({"descr": kind, "fortran_order": False, "shape": shape}).encode().ljust(117)
    head = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header + b"\n"
    return head + struct.pack(f"<{len(values)}{order}", *values)


def npz(**arrays: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in arrays.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def png(rows: list[list[int]], filters: str = "0", **head: int) -> bytes:
    """A grey picture, its rows filtered as `filters` say in turn."""

    def part(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + b"\0\0\0\0"

    packed, above = b"", [0] * len(rows[0])
    for number, row in enumerate(rows):
        kind = int(filters[number % len(filters)])
        left, corner = [0, *row[:-1]], [0, *above[:-1]]
        around = zip(row, left, above, corner, strict=True)
        packed += bytes([kind, *((x - PREDICTED[kind](a, b, c)) % 256 for x, a, b, c in around)])
        above = row
    size = (len(rows[0]), len(rows), head.get("depth", 8), 0, 0, 0, head.get("interlaced", 0))
    parts = (part(b"IHDR", struct.pack(">IIBBBBB", *size)), part(b"IDAT", zlib.compress(packed)))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts) + part(b"IEND", b"")


PREDICTED = (
    lambda a, b, c: 0,
    lambda a, b, c: a,
    lambda a, b, c: b,
    lambda a, b, c: (a + b) // 2,
    lambda a, b, c: min((a, b, c), key=lambda x: abs(x - (a + b - c))),
)
"""The filters of PNG: what they expect from left, above and the corner between."""
PICTURE = [[(7 * x * x + 13 * y * x + 5 * y) % 256 for x in range(16)] for y in range(16)]


def look(folder: Path, name: str, content: bytes) -> dict[str, Any] | None:
    (folder / name).write_bytes(content)
    with (folder / name).open("rb") as file:
        return results.look_into(file.fileno(), name)


@pytest.mark.parametrize(
    ("name", "content", "items", "first"),
    [
        ("p.jsonl", b'{"score": 0.5, "at": [1, 2]}\n{"score": 1}\n{"sco', 2, [[1, 2, 0.5], [1]]),
        ("p.csv", b"1.5,2\n3,4\n", 2, [[1.5, 2], [3, 4]]),
        ("p.tsv", b"1\t2\n", 1, [[1, 2]]),
        ("p.npy", npy((3, 2), "<f4", [1, 2, 3, 4, 5, 6]), 3, [[1, 2], [3, 4], [5, 6]]),
        ("p.npy", npy((2,), "|u1", [7, 8]), 2, [[7], [8]]),
        ("p.npz", npz(a=npy((1, 2), "<f4", [9, 9]), b=npy((2, 1), "<f4", [5, 6])), 2, [[5], [6]]),
        ("p.json", b'[{"score": 1}, {"score": 2}]', 2, [[1], [2]]),
        ("p.json", b'{"info": [1], "annotations": [[1, 2], [3, 4]]}', 2, [[1, 2], [3, 4]]),
    ],
)
def test_items_are_counted_and_the_first_ones_read(
    tmp_path: Path, name: str, content: bytes, items: int, first: list[list[float]]
) -> None:
    """A last line that is not whole yet is no item."""
    found = look(tmp_path, name, content)
    assert found is not None
    assert (found["items"], found["first"], found["bytes"]) == (items, first, len(content))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.pt", b"PK\x03\x04"),
        ("p.npz", b"PK\x03\x04"),
        ("args.json", b'{"batch_size": 8}'),
        ("p.json", b"[1, "),
        ("p.json", b"5"),
        ("p.png", png([[0] * 9] * 9)[:-6]),
        ("p.png", b"\x89PNG\r\n\x1a\n"),
        ("p.jpg", b"\xff\xd8\xff\xe0"),
        ("p.wav", b"RIFF"),
        ("empty.jsonl", b""),
        ("p.jsonl", b"no json\n"),
        ("p.npy", b"\x93NUMPY\x01\x00\xff\xff{'descr'"),
        ("p.npy", npy((), "<f4", [1])),
        ("p.npy", b""),
    ],
)
def test_what_is_no_file_of_items_is_none(tmp_path: Path, name: str, content: bytes) -> None:
    """Whatever the user's program wrote, reading it is no error."""
    assert look(tmp_path, name, content) is None


def test_texts_are_not_kept(tmp_path: Path) -> None:
    """They are compared only, so a digest stands for each."""
    (tmp_path / "p.jsonl").write_text('{"text": "secret"}\n{"text": "secret"}\n{"text": "other"}\n')
    with (tmp_path / "p.jsonl").open("rb") as file:
        found = results.look_into(file.fileno(), "p.jsonl")
    assert found is not None
    one, same, other = found["first"]
    assert one == same != other
    assert "secret" not in str(found)


@pytest.mark.parametrize("filters", ["0", "1", "2", "3", "4", "01234"])
def test_a_picture_is_what_it_shows_however_it_was_packed(tmp_path: Path, filters: str) -> None:
    """Means of fields: of 16 x 16 pixels those of 2 x 2 each."""
    found = look(tmp_path, "p.PNG", png(PICTURE, filters))
    assert found is not None
    (size, *fields), *none = found["first"]
    corner = sum(PICTURE[y][x] for y in (0, 1) for x in (0, 1)) / 4 / 255
    assert not none
    assert isinstance(size, str)
    assert len(fields) == 64
    assert fields[0] == pytest.approx(corner)
    assert (found["items"], found["sampled"], found["digest"]) == (1, True, None)


def test_pictures_of_other_size_or_depth_are_read_too(tmp_path: Path) -> None:
    """Of 16 bits the first byte says what is seen; of an interlaced one only its size is told."""
    deep = look(tmp_path, "p.png", png([[255, 7] * 16] * 16, depth=16).replace(
        struct.pack(">II", 32, 16), struct.pack(">II", 16, 16)))  # fmt: skip
    assert deep is not None
    assert set(deep["first"][0][1:]) == {1.0}
    woven = look(tmp_path, "p.png", png(PICTURE, interlaced=1))
    assert woven is not None
    assert len(woven["first"][0]) == 1
    flat = look(tmp_path, "p.png", png([[255]]))
    assert flat is not None
    assert sum(flat["first"][0][1:]) == 1.0


def test_a_sound_is_its_loudness(tmp_path: Path) -> None:
    """By parts, silence as 0."""
    with wave.open(str(tmp_path / "p.wav"), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(struct.pack("<128h", *([0] * 64 + [1 << 14] * 64)))
    found = look(tmp_path, "p.wav", (tmp_path / "p.wav").read_bytes())
    assert found is not None
    assert found["first"][0][1:] == [0.0] * 32 + [0.5] * 32


@pytest.mark.parametrize("name", ["p.jpg", "p.tif"])
def test_what_cannot_be_read_here_is_one_digest(tmp_path: Path, name: str) -> None:
    """It tells that the content is another one, and not how far."""
    head = b"\xff\xd8\xff\xc0\0\x0b\x08\0\x20\0\x30\x01\x01\x11\0"
    one, same, other = (look(tmp_path, name, head + tail) for tail in (b"a", b"a", b"b"))
    assert one is not None
    assert other is not None
    assert one == same
    assert one["digest"] != other["digest"]
    assert one["first"] == other["first"]
    assert [len(item) for item in one["first"]] == ([1] if name == "p.jpg" else [])


def test_a_wide_row_is_sampled_all_along(tmp_path: Path) -> None:
    """What its first values are says little of a picture."""
    found = look(tmp_path, "p.npy", npy((1, 640), "<f4", [float(n) for n in range(640)]))
    assert found is not None
    assert found["first"] == [[float(n) for n in range(0, 640, 10)]]
    assert found["sampled"]
