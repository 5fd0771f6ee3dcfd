"""Renames of the user's folders under an overlay, where the kernel refuses them.

A folder that the trial did not make lies in the lower layer, which cannot be changed: rename(2)
answers EXDEV, as in containers. `mv` and `shutil.move` then copy by themselves; this lets
`os.rename` and `os.replace` do so, too. It acts as the program, with no other rights than its own.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
from typing import Any, Callable


def install() -> None:
    """Wrap the functions that rename."""
    for name in ("rename", "replace"):
        setattr(os, name, _copying(getattr(os, name)))


def _copying(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def rename(src: Any, dst: Any, **folders: Any) -> None:
        try:
            original(src, dst, **folders)
        except OSError as problem:
            folder = problem.errno == errno.EXDEV and not folders
            if not folder or not stat.S_ISDIR(os.lstat(src).st_mode):
                raise
            _move(src, dst, problem)

    return rename


def _move(src: Any, dst: Any, refused: OSError) -> None:
    """Move a folder by copying. Raises what the rename would have raised."""
    import shutil

    inside = os.path.join(os.path.realpath(src), "")
    if os.path.join(os.path.realpath(dst), "").startswith(inside):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), src, None, dst)
    if os.path.lexists(dst):
        os.rmdir(dst)
    try:
        shutil.copytree(src, dst, symlinks=True)
    except (OSError, shutil.Error):
        shutil.rmtree(dst, ignore_errors=True)
        raise refused from None
    shutil.rmtree(src)
