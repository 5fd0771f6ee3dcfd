"""Messages between an engine and an agent: one JSON object a line."""

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from advisor.files import reading
from advisor.model import Trial

T = TypeVar("T")

BEAT_S = 5.0
"""Interval of the lines that show each side lives."""
SILENCE_S = 30.0
"""Silence after which a side is taken for dead."""
LARGEST_BYTES = 16 << 20
"""Larger files are compared by size alone."""


def encode(**fields: Any) -> bytes:
    """Encode a message; dataclasses become objects, bytes of configs text."""
    return json.dumps(fields, default=_plain).encode("ascii") + b"\n"


def _plain(value: Any) -> Any:
    return value.decode("utf-8") if isinstance(value, bytes) else dataclasses.asdict(value)


def decode(line: bytes) -> dict[str, Any]:
    """Decode a message; empty for other lines, such as a shell's greeting."""
    try:
        found = reading.from_json(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def read(kind: type[T], found: object) -> T:
    """Read a dataclass from its object. Raises pydantic's ValidationError."""
    return TypeAdapter(kind).validate_python(found)


def named_files(trial: Trial) -> dict[str, str]:
    """Files that command or candidate name, with digests here."""
    names = (*trial.command[1:], *(file.original for file in trial.files))
    found = {name: digest(Path(trial.cwd, name)) for name in names}
    return {name: text for name, text in found.items() if text}


def digest(path: Path) -> str:
    """Digest of a file, or a large one's size; else empty."""
    try:
        if not path.is_file():
            return ""
        size = path.stat().st_size
        return (
            str(size)
            if size > LARGEST_BYTES
            else hashlib.sha256(path.read_bytes()).hexdigest()
        )
    except OSError as problem:
        return os.strerror(problem.errno or 0)
