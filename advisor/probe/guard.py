"""The user's existing files are not written over.

Python tells an audit hook of every file it is about to open, rename or remove. What existed under
the protected directory before the trial started is refused, before it is touched; what is new is
let through and listed. Libraries that write from C without telling Python are wrapped by name.
"""

from __future__ import annotations

import functools
import os
import stat
import sys
import threading
import time
from typing import Any, Callable, Tuple

from .session import Session

EXIT_CODE = 97
WRITES_KEPT = 200

WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
NAMELESS = getattr(os, "O_TMPFILE", -1)
REBUILT = ("__pycache__", ".mypy_cache", ".pytest_cache")
"""Folders whose files a tool writes again by itself."""
CACHE_FOLDERS = ("~/.cache", "~/.triton", "~/.nv", "~/.config/matplotlib")
"""Defaults of the caches that the variables below name."""
CACHE_VARIABLES = (
    "TMPDIR",
    "XDG_CACHE_HOME",
    "HF_HOME",
    "TORCH_HOME",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "CUDA_CACHE_PATH",
    "MPLCONFIGDIR",
    "NUMBA_CACHE_DIR",
)

SAVERS = (
    ("torch", "save", 1, None),
    ("safetensors.torch", "save_file", 1, None),
    ("safetensors.numpy", "save_file", 1, None),
    ("cv2", "imwrite", 0, None),
    ("torchaudio", "save", 0, None),
    ("rasterio", "open", 0, 1),
    ("h5py", "File.__init__", 1, 2),
)
"""(module, function, position of the path, position of the mode) of what writes from C."""
SAVER_MODULES = tuple(module for module, *_ in SAVERS)


class Guard:
    """Decides on each file that is about to change."""

    def __init__(self, session: Session, spec_path: str) -> None:
        spec = session.spec
        self._session = session
        self._listens = bool(spec.get("guarded", True))
        """Otherwise the kernel refuses or discards the writes itself."""
        self._refuses = not spec.get("allow_writes")
        self._protect = _folder(str(spec.get("protect") or os.getcwd()))
        free = [str(spec["scratch"]), str(spec["records"])] if spec.get("scratch") else []
        free += [os.environ[name] for name in CACHE_VARIABLES if os.environ.get(name)]
        free += [os.path.expanduser(folder) for folder in CACHE_FOLDERS]
        self._free = tuple(_folder(path) for path in free)
        self._made = {os.path.realpath(str(path)) for path in spec.get("made") or ()}
        """Files that earlier trials created."""
        self._started = os.stat(spec_path).st_mtime
        """Files changed since then are the trial's own."""
        self._judging = threading.local()
        """Set in a thread whose own calls must not be judged again."""

    def watch(self) -> None:
        """Listen to Python; this cannot be taken back."""
        if self._listens:
            sys.addaudithook(self._audit)

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        find = _EVENTS.get(event)
        if find is not None:
            for path in find(args):
                self.touch(path, tree=event in TREES)

    def touch(self, path: Any, *, tree: bool = False) -> None:
        """Check a change of `path`, or of its `tree`."""
        busy = getattr(self._judging, "busy", False)
        if busy or not self._listens or isinstance(path, int):
            return
        self._judging.busy = True
        try:
            self._judge(os.fsdecode(path), tree)
        except (TypeError, ValueError):
            pass
        except Exception as problem:  # the user's open() must not fail for us
            self._session.fail(problem)
        finally:
            self._judging.busy = False

    def _judge(self, path: str, tree: bool) -> None:
        full = os.path.realpath(path)
        if full.startswith(self._free) or any(part in REBUILT for part in full.split(os.sep)):
            return
        try:
            status = os.stat(full)
        except OSError:
            self._note(self._session.writes, full)
            return
        folder = stat.S_ISDIR(status.st_mode)
        if not (stat.S_ISREG(status.st_mode) or (tree and folder)):
            return
        inside = _folder(full).startswith(self._protect)
        around = tree and folder and self._protect.startswith(_folder(full))
        users = self._is_users(full, status)
        if (inside or around) and self._refuses and users:
            self._refuse(full)
        self._note(self._session.altered if users else self._session.writes, full)

    def _is_users(self, full: str, status: os.stat_result) -> bool:
        if stat.S_ISREG(status.st_mode):
            return status.st_ctime < self._started and full not in self._made
        for folder, _, names in os.walk(full):
            for name in names:
                path = os.path.join(folder, name)
                if os.lstat(path).st_ctime < self._started and path not in self._made:
                    return True
        return False

    def _note(self, kept: list[str], full: str) -> None:
        """Keep a path in the record, which outlives a kill."""
        from . import record

        if len(kept) < WRITES_KEPT and full not in kept and not full.startswith("/proc/"):
            kept.append(full)
            record.beat(self._session)

    def _refuse(self, full: str) -> None:
        from . import control, record

        self._session.guard = full
        record.beat(self._session)
        control.leave(self._session, EXIT_CODE)

    def wrap_savers(self, module: Any) -> None:
        """Wrap the functions of a library that write from C."""
        for name, function, position, mode in SAVERS:
            if name != module.__name__:
                continue
            owner, _, last = function.rpartition(".")
            holder = getattr(module, owner, None) if owner else module
            original = getattr(holder, last, None)
            if holder is not None and original is not None:
                setattr(holder, last, self._wrapped(original, position, mode))

    def _wrapped(self, original: Any, position: int, mode: int | None) -> Any:
        @functools.wraps(original)
        def saver(*args: Any, **kwargs: Any) -> Any:
            path = args[position] if len(args) > position else _path_keyword(kwargs)
            how = "w"
            if mode is not None:
                how = kwargs.get("mode", args[mode] if len(args) > mode else None) or "r"
            if isinstance(path, (str, bytes, os.PathLike)) and how != "r":
                self.touch(path)
            start = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                self._session.add(("save", start, time.perf_counter()))

        return saver


def _path_keyword(kwargs: dict[str, Any]) -> Any:
    for name in ("f", "filename", "fp", "name", "uri"):
        if name in kwargs:
            return kwargs[name]
    return None


def _folder(path: str) -> str:
    return os.path.join(os.path.realpath(path), "")


Paths = Tuple[Any, ...]


def _opened(args: Paths) -> Paths:
    path, mode, flags = args[0], args[1], args[2] if len(args) > 2 else 0
    if isinstance(mode, str):
        writes = any(letter in mode for letter in "wax+")
    else:
        writes = isinstance(flags, int) and flags & NAMELESS != NAMELESS and flags & WRITING != 0
    return (path,) if writes else ()


def _moved(args: Paths) -> Paths:
    """Return the source and target of a move."""
    return tuple(path for path, folder in zip(args[:2], args[2:4]) if folder == -1)


def _named(args: Paths) -> Paths:
    """Return the path named by an event's arguments."""
    return args[:1] if len(args) < 2 or args[-1] in (-1, None) else ()


def _database(args: Paths) -> Paths:
    """Return the SQLite file opened for writing."""
    name = os.fsdecode(args[0])
    if not name.startswith("file:"):
        return (name,)
    from urllib.parse import unquote

    path, _, options = name[5:].partition("?")
    return () if "mode=ro" in options or "immutable=1" in options else (unquote(path),)


_EVENTS: dict[str, Callable[[Paths], Paths]] = {
    "open": _opened,
    "os.rename": _moved,
    "os.link": _moved,  # what is done to the link is done to the file
    "os.remove": _named,
    "os.truncate": lambda args: args[:1],
    "os.chmod": _named,
    "os.chown": _named,
    "os.utime": _named,
    "os.setxattr": lambda args: args[:1],
    "os.removexattr": lambda args: args[:1],
    "shutil.rmtree": _named,
    "sqlite3.connect": _database,
}
TREES = ("shutil.rmtree", "os.rename")
"""Events that concern a whole folder where the path is one."""
