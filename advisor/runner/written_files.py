"""Files that a program wrote: created, changed and removed ones, and the items in them.

Texts are kept as digests, only to compare. NumPy reads arrays, Pillow pictures, where
gpu-advisor's Python has them; a file of another format is one digest.
"""

import hashlib
import importlib
import json
import math
import os
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from advisor.model import ResultFile
from advisor.runner.process_records import ProcessRecord
from advisor.sandbox.layers import COUNTED_LIMIT, RESULTS_LIMIT, holds_items, is_product

NAMED_LIMIT = 8
"""Names in a sentence; it counts the rest."""
FIRST_ITEMS = 16
"""First items of a file whose values are compared.

Judgement: fewer misses a difference that begins after the first batch, more swells each record."""
VALUES = 64
"""Values of an item that are compared: of an array evenly spread, of a text the first.

Judgement: fewer may all lie in padding, more swells each record."""
LINE_BYTES = 1 << 20
"""Longest line, in bytes, whose values are compared; what follows a longer one is not.

Judgement: shorter leaves items with long texts uncompared, longer reads a file without line ends
into memory."""
JSON_BYTES = 16 << 20
"""Largest document, in bytes, that is parsed: it must be read whole.

Judgement: smaller leaves more results uncompared. Larger costs time after each trial, and many
times its bytes of memory."""
DIGESTED_BYTES = 8 << 20
"""First bytes of an unreadable file that its digest is of.

Judgement: fewer misses what differs behind a long header, more costs time after each trial."""
WORDS = re.compile(r"(-?\b\d+(?:\.\d*)?(?:[eE][-+]?\d+)?\b)|([^\s,;:{}\[\]\"]+)")
GRID = 8
"""A picture is compared by the means of 8 x 8 fields.

Judgement: fewer takes different pictures for equal, more tells the noise of single pixels."""


Texts = tuple[str, ...]


def changed_files(
    changes: Mapping[str, Any], root: str, *, thrown_away: bool
) -> tuple[Texts, Texts, Texts]:
    """Names of created files and of altered or removed ones, and notes on them."""
    created, changed, removed, sealed = (
        tuple(relative_name(path, root) for path in changes[kind])
        for kind in ("created", "changed", "removed", "sealed")
    )
    altered, end = (
        (*changed, *removed),
        ", thrown away with the trial" if thrown_away else "",
    )
    notes = _note("the program changed or removed", altered, end)
    return created, altered, (*notes, *_note("shown read-only to the program:", sealed))


def guarded_changes(processes: Sequence[ProcessRecord]) -> dict[str, Any]:
    """Changes that the probe saw Python make, as a sandbox tells them."""
    altered = {path for process in processes for path in process.altered}
    made = {path for process in processes for path in process.writes if Path(path).exists()}
    created = sorted(made - altered)
    return {"created": created, "changed": sorted(altered), "removed": (), "sealed": ()}


def _note(verb: str, names: Sequence[str], end: str = "") -> tuple[str, ...]:
    more = f" and {len(names) - NAMED_LIMIT} more" if len(names) > NAMED_LIMIT else ""
    return (f"{verb} {', '.join(names[:NAMED_LIMIT])}{more}{end}",) if names else ()


def read_copies(changes: Mapping[str, Any], root: str) -> Iterator[ResultFile]:
    for entry in changes.get("results", ()):
        copy = Path(entry["copy"])
        for result in read_file(copy, relative_name(entry["path"], root)):
            yield replace(result, written_at=entry["written_at"])
        copy.unlink(missing_ok=True)


def read_folder(folder: str) -> tuple[list[float], tuple[ResultFile, ...]]:
    """Read the trial's output folder: times of product files, and its items."""
    written_at: list[float] = []
    results: list[ResultFile] = []
    for path in _files_below(folder):
        try:
            status = path.stat(follow_symlinks=False)
        except OSError:
            continue  # a process of the program still tidies up
        if not is_product(path.name, status) or len(written_at) == COUNTED_LIMIT:
            continue
        written_at.append(round(status.st_mtime, 3))
        if len(results) < RESULTS_LIMIT and holds_items(path.name, status):
            result = read_file(path, relative_name(str(path), folder))
            results += [replace(file, written_at=status.st_mtime) for file in result]
    return written_at, tuple(results)


def _files_below(folder: str) -> list[Path]:
    """Return what is no folder, sorted; of a tree deeper than paths are long, what has a path."""
    files, waiting = [], [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        files.append(Path(entry.path))
        except OSError:
            continue
    return sorted(files)


def relative_name(path: str, root: str) -> str:
    """Text of `path`, relative to `root` where possible."""
    real = str(Path(path).parent.resolve() / Path(path).name)  # a link is not followed
    name = real.removeprefix(os.path.realpath(root) + os.sep)
    return os.fsencode(name).decode(errors="replace")


def read_file(path: Path, name: str) -> list[ResultFile]:
    """Read `path` in the format that `name` ends with; none if unreadable."""
    reader = FORMATS.get(Path(name).suffix.lower(), _digested)
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            try:
                result = reader(file)
            except ImportError:
                result = _digested(file)
            first = tuple(tuple(map(_value, values)) for values in result.get("first", ()))
    except Exception:  # an untrusted file makes a decoder raise anything
        return []
    return [ResultFile(path=name, size_bytes=size, **(result | {"first": first}))]


def _value(leaf: object) -> float | str:
    if isinstance(leaf, (int, float)) and math.isfinite(leaf):
        return float(leaf)
    return hashlib.blake2b(
        str(leaf).encode("utf-8", "surrogatepass"), digest_size=8
    ).hexdigest()


def _json(file: BinaryIO) -> dict[str, Any]:
    content = json.loads(file.read(JSON_BYTES))  # of a larger one a part, which is no JSON
    lists = [content] if isinstance(content, list) else list(content.values())
    items: list[Any] = max((part for part in lists if isinstance(part, list)), key=len)
    first = [_words(json.dumps(item)) for item in items[:FIRST_ITEMS]]
    return {"items": len(items), "first": first}


def _lines(file: BinaryIO) -> dict[str, Any]:
    first: list[bytes] = []
    while len(first) < FIRST_ITEMS and (line := file.readline(LINE_BYTES)).endswith(b"\n"):
        first.append(line)
    count = len(first)
    while chunk := file.read(1 << 20):
        count += chunk.count(b"\n")
    words = [_words(line.decode("utf-8", "replace")) for line in first]
    return {"items": count, "first": words}


def _words(text: str) -> list[object]:
    return [
        float(number) if number else word for number, word in WORDS.findall(text)[:VALUES]
    ]


def _array(file: BinaryIO) -> dict[str, Any]:
    numpy: Any = importlib.import_module("numpy")
    loaded = numpy.load(file, allow_pickle=False)
    arrays = (
        [loaded[name] for name in loaded.files] if hasattr(loaded, "files") else [loaded]
    )
    longest = max((values for values in arrays if values.ndim), key=len)
    rows = longest[:FIRST_ITEMS].reshape(min(len(longest), FIRST_ITEMS), -1)
    step = max(1, rows.shape[1] // VALUES)
    first = [row[::step].tolist()[:VALUES] for row in rows]
    return {"items": len(longest), "first": first, "sampled": step > 1}


def _picture(file: BinaryIO) -> dict[str, Any]:
    image: Any = importlib.import_module("PIL.Image")
    with image.open(file) as picture:
        deep = picture.mode.startswith(("I", "F"))
        grey = picture.convert("F") if deep else picture.convert("L").convert("F")
        fields = grey.resize((GRID, GRID), image.Resampling.BOX)
        highest = 65535 if picture.mode.startswith("I") else 1 if deep else 255
        means = [value / highest for value in array("f", fields.tobytes())]
        size = "{}x{}".format(*picture.size)
    return {"items": 1, "first": [[size, *means]], "sampled": True}


def _digested(file: BinaryIO) -> dict[str, Any]:
    file.seek(0)
    digest = hashlib.blake2b(file.read(DIGESTED_BYTES), digest_size=8).hexdigest()
    return {"items": 1, "digest": digest}


FORMATS: dict[str, Callable[[BinaryIO], dict[str, Any]]] = {
    **dict.fromkeys((".jsonl", ".ndjson", ".csv"), _lines),
    ".json": _json,
    **dict.fromkeys((".npy", ".npz"), _array),
    **dict.fromkeys(
        (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".bmp", ".gif"), _picture
    ),
}
"""Reader of each format: fields of `ResultFile`; values of `first` are any objects."""
