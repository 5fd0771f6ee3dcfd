"""Simulated cards below the CUDA API: torch's own CUDA build runs over them as it is.

`src/` has a runtime, cuBLAS, cuDNN, driver and NVML of our own. Whatever torch does above them
is the real thing: dispatcher, caching allocator, autograd, events, graphs, AMP, pinned copies,
Inductor and Triton. Times are plausible, numbers are not computed. README.md says what is
simulated and what is not.

    python -m tests.fakegpu install          # once: 5.5 GB of torch, and the stubs (4 s)
    python -m tests.fakegpu run --card h100 -- COMMAND

Tests that need it carry the marker `cuda_build`, and are skipped where it is not installed.
"""

import ctypes
import functools
import os
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.fakegpu import building

VENV = Path(os.environ.get("CUDA_BUILD_VENV", Path(__file__).resolve().parents[2] / ".venv-cuda"))
"""Virtual environment with torch's CUDA build; `install` makes it."""
PYTHON = VENV / "bin" / "python"
ENGINES = ("compute", "to_device", "to_host", "exchange")
CARDS_MOST, PROCESSES_MOST, BUCKETS = 8, 64, 1 << 17
ROOMS, TURNS, LETTER = 16, 4, 1 << 16
BUCKET_S = 0.01
"""As `src/device.h` has them: the truth is kept in parts of 10 ms."""


class _Process(ctypes.Structure):
    """`process_slot` of src/device.h."""

    _fields_ = (
        ("pid", ctypes.c_int),
        ("bytes", ctypes.c_int64),
        ("busy_ns", ctypes.c_int64),
        ("last_busy", ctypes.c_int64),
    )


class _Card(ctypes.Structure):
    """`card_state` of src/device.h."""

    _fields_ = (
        ("end", ctypes.c_int64 * len(ENGINES)),
        ("busy_ns", ctypes.c_int64 * len(ENGINES)),
        ("launches", ctypes.c_int64),
        ("copied_bytes", ctypes.c_int64 * len(ENGINES)),
        ("contexts", ctypes.c_int64),
        ("processes", _Process * PROCESSES_MOST),
        ("outside_bytes", ctypes.c_int64),
        ("busy", (ctypes.c_int32 * BUCKETS) * len(ENGINES)),
        ("swept", ctypes.c_int64),
    )


class _Turn(ctypes.Structure):
    """An exchange in a `meeting_room` of src/device.h."""

    _fields_ = (
        ("number", ctypes.c_int64 * CARDS_MOST),
        ("ready", ctypes.c_int64 * CARDS_MOST),
        ("letter", (ctypes.c_char * LETTER) * CARDS_MOST),
    )


class _Room(ctypes.Structure):
    """`meeting_room` of src/device.h."""

    _fields_ = (("id", ctypes.c_uint64), ("present", ctypes.c_int), ("turns", _Turn * TURNS))


class _State(ctypes.Structure):
    """`shared_state` of src/device.h."""

    _fields_ = (
        ("begun", ctypes.c_int64),
        ("cards", _Card * CARDS_MOST),
        ("choosing", ctypes.c_int),
        ("rooms_taken", ctypes.c_int),
        ("rooms", _Room * ROOMS),
    )


@dataclass(frozen=True, kw_only=True)
class CardTotals:
    """What a card did since it was made."""

    contexts: int
    """Processes that opened a context on it."""
    launches: int
    busy_s: Mapping[str, float]
    """By engine."""


@functools.cache
def missing() -> str | None:
    """Why the bed cannot be used here; None: it can, and the stubs are built."""
    if not PYTHON.exists():
        return f"no CUDA build of torch in {VENV}: python -m tests.fakegpu install"
    building.build(VENV)
    return None


KEYS_TRIED = 8


class Cards:
    """Simulated cards that the processes of one test share.

    Their state lies in System V shared memory, which ends with this object. NVML of every
    process with `environment` tells of them, as torch does.
    """

    def __init__(
        self, *names: str, full_gib: float = 0.0, slower: float = 1.0, **more: object
    ) -> None:
        """`full_gib`: held by others. `slower`: all that a card does takes so many times as long.

        `more`: settings of the stubs, as `FAKEGPU_<NAME>`.
        """
        self._settings = {
            "CARDS": ",".join(names or ("rtx-3090",)),
            "FULL_GIB": str(full_gib),
            "SLOWER": str(slower),
            **{name.upper(): str(value) for name, value in more.items()},
        }
        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        self._libc.shmat.restype = ctypes.c_void_p
        made = 0o3666  # IPC_CREAT | IPC_EXCL, and for all to read and write
        for _ in range(KEYS_TRIED):
            self._key = 0x66000000 | random.SystemRandom().randrange(1 << 24)
            self._id = self._libc.shmget(self._key, ctypes.sizeof(_State), made)
            if self._id >= 0:
                break
        else:
            raise OSError(ctypes.get_errno(), "no shared memory for simulated cards")
        at = self._libc.shmat(self._id, None, 0)
        self._state = _State.from_address(at)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._libc.shmctl(self._id, 0, None)  # IPC_RMID: gone once the last process has left

    def environment(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """`base` with these cards, for any program and all that it starts."""
        libraries = building.folder(VENV)
        preload = [str(libraries / name) for name in building.SONAMES]
        return {
            **base,
            **{f"FAKEGPU_{name}": value for name, value in self._settings.items()},
            "FAKEGPU_KEY": hex(self._key),
            "LD_PRELOAD": " ".join([*preload, *filter(None, [base.get("LD_PRELOAD")])]),
            "TRITON_LIBCUDA_PATH": str(libraries),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }

    def busy_share(self, engine: str, start: float, end: float, *, card: int = 0) -> float:
        """Share of a stretch (epoch seconds) in which an engine of a card worked."""
        apart = time.time() - time.monotonic()
        first, last = (round((when - apart) / BUCKET_S) for when in (start, end))
        spans = self._state.cards[card].busy[ENGINES.index(engine)]
        busy_ns = sum(spans[bucket % BUCKETS] for bucket in range(first, last))
        return busy_ns / 1e9 / ((last - first) * BUCKET_S) if last > first else 0.0

    def totals(self, card: int = 0) -> CardTotals:
        """Everything that a card did."""
        state = self._state.cards[card]
        busy_s = {name: ns / 1e9 for name, ns in zip(ENGINES, state.busy_ns, strict=True)}
        return CardTotals(contexts=state.contexts, launches=state.launches, busy_s=busy_s)
