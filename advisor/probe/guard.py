"""Watch the files that a program changes, and protect the user's existing ones.

An audit hook sees each file before Python opens, renames or removes it. What existed under
the protected directory before the trial is refused untouched; what is new is listed.

This is the last of three walls, for hosts on which the kernel offers neither an overlay nor
Landlock. It holds a program that means no harm: what C code writes by itself passes unseen,
but for the few libraries in SAVERS.
"""

from __future__ import annotations

import functools
import os
import stat
import threading
from typing import Any

from .clocks import clock
from .session import Patches, Session

EXIT_CODE = 97
"""Exit code of a program that was ended before it changed a file of the user's.

Judgement: any that neither Python (1, 2) nor a shell (126 and more) ends with would do, as the
record says why."""
WRITES_KEPT = 200
"""Files that are listed at most.

Judgement: fewer cut what a user has to know, more write a long record at each new file."""

WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
REBUILT = ("__pycache__", ".mypy_cache", ".pytest_cache")
"""Folders of files that a tool writes again."""
MOVES = ("os.rename", "os.link")
"""Events of two paths; what is done to a link is done to the file."""
CHANGES = ("os.remove", "os.chmod", "os.utime", "shutil.rmtree")
"""Events of one path; the last argument is the open folder around it, or -1."""
TREES = ("os.rename", "shutil.rmtree")
"""Events of a whole folder where the path is one."""

EVENTS = frozenset(("open", "os.truncate", "sqlite3.connect", *MOVES, *CHANGES))

SAVERS = (
    ("torch", "save", 1, "f"),
    ("safetensors.torch", "save_file", 1, "filename"),
    ("safetensors.numpy", "save_file", 1, "filename"),
    ("cv2", "imwrite", 0, "filename"),
    ("torchaudio", "save", 0, "uri"),
)
"""(module, function, position and name of the path) of what writes from C."""
SAVER_MODULES = tuple(module for module, *_ in SAVERS)


class Guard:
    """Decides on each file about to change."""

    def __init__(self, session: Session, spec_path: str) -> None:
        spec = session.spec
        self._session = session
        self.listens = bool(spec.get("guarded", True))
        """Otherwise the kernel refuses or discards the writes itself."""
        self._refuses = not spec.get("allow_writes")
        self._protect = _folder(str(spec["protect"]))
        self._free = tuple(_folder(str(path)) for path in spec.get("free") or ())
        """Folders of the trial, and caches that a library refills."""
        self._made = {os.path.realpath(str(path)) for path in spec.get("made") or ()}
        """Files that earlier trials created."""
        self._started = os.stat(spec_path).st_mtime
        """Files changed since then are the trial's own."""
        self._judging = threading.local()
        """Set in a thread whose calls must not be judged again."""

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Python's audit hook, which cannot be removed."""
        if event in EVENTS and (event != "open" or len(args) == 3):
            for path in _changed(event, args):
                self.touch(path, tree=event in TREES)

    def touch(self, path: Any, *, tree: bool = False) -> None:
        """Check a change of `path`, or of its `tree`."""
        busy = getattr(self._judging, "busy", False)
        if busy or not self.listens or not isinstance(path, (str, bytes, os.PathLike)):
            return
        self._judging.busy = True
        try:
            self._judge(os.path.realpath(os.fsdecode(path)), tree)
        except ValueError:  # a name that no file can have
            pass
        except Exception as problem:  # the user's open() must not fail for us
            self._session.fail(problem)
        finally:
            self._judging.busy = False

    def _judge(self, full: str, tree: bool) -> None:
        if full.startswith(self._free) or any(
            part in REBUILT for part in full.split(os.sep)
        ):
            return
        if not os.path.exists(full):
            self._note(self._session.writes, full)
        elif os.path.isfile(full) or (tree and os.path.isdir(full)):
            users = self._is_users(full)
            inside = _folder(full).startswith(self._protect)
            if (
                self._refuses
                and users
                and (inside or self._protect.startswith(_folder(full)))
            ):
                self._refuse(full)
            self._note(self._session.altered if users else self._session.writes, full)

    def _is_users(self, full: str) -> bool:
        """Return True for a file from before the trial, or a folder with one."""
        waiting = [full]
        while waiting:  # of any depth
            path = waiting.pop()
            status = os.lstat(path)
            if stat.S_ISDIR(status.st_mode):
                waiting += [entry.path for entry in os.scandir(path)]
            elif status.st_ctime < self._started and path not in self._made:
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
        """Wrap a library's functions that write from C."""
        for name, function, position, keyword in SAVERS:
            if name == module.__name__ and hasattr(module, function):
                save = functools.partial(self._save, position, keyword)
                Patches().wrap(module, function)(save)

    def _save(
        self, position: int, keyword: str, original: Any, *args: Any, **kwargs: Any
    ) -> Any:
        self.touch(args[position] if len(args) > position else kwargs.get(keyword))
        start = clock()
        try:
            return original(*args, **kwargs)
        finally:
            self._session.recorder.add(("save", start, clock()))


def writes(mode: Any, flags: Any = 0, *_: Any) -> bool:
    """Return True for the arguments of an open that may write."""
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and flags & WRITING != 0


def _changed(event: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the paths an event will change."""
    if event == "open":
        return args[:1] if writes(*args[1:]) else ()
    if event in MOVES:
        return tuple(path for path, folder in zip(args[:2], args[2:4]) if folder == -1)
    if event in CHANGES:
        return args[:1] if len(args) < 2 or args[-1] in (-1, None) else ()
    if event == "os.truncate":
        return args[:1]
    if event == "sqlite3.connect" and "mode=ro" not in os.fsdecode(args[0]):
        return (os.fsdecode(args[0]).partition("?")[0].replace("file:", "", 1),)
    return ()


def _folder(path: str) -> str:
    return os.path.join(os.path.realpath(path), "")
