"""Files of items: their number in each format, and the values of the first ones."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from advisor.model import ResultFile
from advisor.runner.written_files import read_file, read_folder


def read(folder: Path, name: str, content: bytes) -> ResultFile | None:
    """Read `content` as a file of this name."""
    path = folder / "copy"
    path.write_bytes(content)
    return next(iter(read_file(path, name)), None)


@pytest.mark.parametrize(
    ("name", "content", "count", "first"),
    [
        ("p.jsonl", b"[1, 3, -2e3]\n[4]\n", 2, ((1, 3, -2000), (4,))),
        ("p.CSV", b"1,2.5\n3,4\n", 2, ((1, 2.5), (3, 4))),
        ("p.json", b'{"made": [[1], [2]], "n": [1]}', 2, ((1,), (2,))),
        ("p.csv", b"1\n" * 40 + b"cut", 40, ((1,),) * 16),
    ],
)
def test_items_are_counted_and_the_first_ones_read(tmp_path, name, content, count, first) -> None:
    """A line that is not whole is no item."""
    found = read(tmp_path, name, content)
    assert found.items == count
    assert found.first == first


@pytest.mark.parametrize(
    ("name", "content"), [("p.json", b'{"lr": 1}'), ("p.npy", b"x"), ("p.png", b"x")]
)
def test_a_broken_file_holds_no_items(tmp_path, name, content) -> None:
    assert read(tmp_path, name, content) is None


def test_texts_are_kept_as_digests(tmp_path) -> None:
    lines = "".join(json.dumps({"text": text}) + "\n" for text in ("secret", "secret", "other"))
    found = read(tmp_path, "p.jsonl", lines.encode())
    one, same, other = found.first
    assert one == same != other
    assert "secret" not in str(found)


def test_an_array_counts_its_rows_and_samples_wide_ones(tmp_path) -> None:
    """The longest array of an archive is the one of the items."""
    rows = np.arange(3 * 640, dtype="float32").reshape(3, 640)
    np.save(tmp_path / "p.npy", rows)
    np.savez(tmp_path / "p.npz", rows=rows, scale=np.float32(1.0), few=np.zeros(2))
    for name in ("p.npy", "p.npz"):
        (found,) = read_file(tmp_path / name, name)
        assert found.items == 3
        assert found.sampled is True
        assert found.first[0] == tuple(float(n) for n in range(0, 640, 10))


@pytest.mark.parametrize(("mode", "full"), [("L", 255), ("RGB", (255,) * 3), ("I;16", 65535)])
def test_a_picture_is_the_brightness_of_its_fields(tmp_path, mode, full) -> None:
    """Black is 0, white is 1, in every depth."""
    picture = Image.new(mode, (32, 16))
    picture.paste(full, (0, 0, 16, 16))
    picture.save(tmp_path / "p.png")
    (found,) = read_file(tmp_path / "p.png", "p.png")
    assert found.first[0][1:] == pytest.approx([*[1.0] * 4, *[0.0] * 4] * 8)
    assert found.items == 1
    assert found.sampled is True
    assert found.digest is None


@pytest.mark.parametrize("name", ["p.npy", "p.png", "p.flac"])
def test_without_a_decoder_a_file_is_one_digest(tmp_path, name, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    one, same, other = (read(tmp_path, name, content) for content in (b"a", b"a", b"b"))
    assert one == same
    assert one.digest != other.digest
    assert one.items == 1
    assert one.first == ()


def test_the_trials_own_output_folder_is_read_without_links(tmp_path) -> None:
    """Logs are no products, and a link could lead anywhere."""
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "p.jsonl").write_text("1.5\n")
    (tmp_path / "run.log").write_text("x")
    (tmp_path / "q.csv").symlink_to("/etc/passwd")
    written_at, (held,) = read_folder(str(tmp_path))
    assert len(written_at) == 1
    assert held.path == "made/p.jsonl"
    assert held.first == ((1.5,),)
