"""Digests of what may change: random generators, and arrays in this process's own memory."""

from __future__ import annotations

import random
import zlib
from typing import Any

SEQUENCES = {"SobolEngine", "QMCEngine"}
"""Classes of torch's and scipy's sequences of numbers that stand for random ones."""


def generator_state(value: Any) -> str | None:
    """Digest of a random generator's state; None for any other value."""
    kind = type(value)
    library, name = kind.__module__.partition(".")[0], kind.__name__
    try:
        if isinstance(value, random.Random):
            system = isinstance(value, random.SystemRandom)
            return None if system else digest(value.getstate()[1])
        if library == "numpy" and name == "Generator":
            return digest(value.bit_generator.state)
        if library == "numpy" and name == "RandomState":
            _, words, position, *_ = value.get_state()
            return digest((zlib.crc32(words.tobytes()), position))
        if library == "torch" and name == "Generator" and value.device.type == "cpu":
            return digest(zlib.crc32(bytes(value.get_state().tolist())))
        bases = {base.__name__ for base in kind.__mro__}
        if bases & SEQUENCES and library in ("torch", "scipy"):
            return digest((value.num_generated, value.__dict__.get("seed")))
    except Exception:  # a class of another library with one of these names
        pass
    return None


def digest(state: Any) -> str:
    return f"{zlib.crc32(repr(state).encode()):08x}"


def array_digest(value: Any) -> Any:
    """Digest of an array in this process's own memory, by 64 numbers."""
    try:
        if (
            type(value).__name__ == "memmap"
            or str(getattr(value, "dtype", "O")) == "object"
        ):
            return None
        flat = value
        if hasattr(value, "is_shared"):
            if value.device.type != "cpu" or value.is_shared():
                return None
            flat = value.detach()
        flat = flat.reshape(-1)
        return tuple(value.shape), digest(flat[:: max(1, len(flat) // 64)][:64].tolist())
    except Exception:  # of another library, or not dense
        return None
