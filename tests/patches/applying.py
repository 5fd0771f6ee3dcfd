"""A user's repository, and what `git apply` makes of a patch of it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def applied(folder: Path, file: Path, patch: str | None) -> str:
    """The file as `git apply` leaves it; the file itself must not have been touched before."""
    assert patch is not None
    (folder / "one.patch").write_bytes(patch.encode())
    done = subprocess.run(
        ["git", "apply", "--verbose", "one.patch"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return file.read_bytes().decode()


def written(folder: Path, code: str) -> Path:
    """`code` as `src/train.py` of a repository that is made in `folder`; its path."""
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    file = folder / "src" / "train.py"
    file.parent.mkdir()
    file.write_bytes(code.encode())
    return file
