"""Project's state folder, open to its user only: beside gpu-advisor.toml or .git.

If unwritable, below XDG_STATE_HOME by path: a moved project's originals are not found.
"""

import contextlib
import hashlib
import os
from pathlib import Path

from advisor import settings
from advisor.errors import StateUnusableError

STATE_FOLDER = ".gpu-advisor"


def project_root(config: Path) -> Path:
    """Folder of gpu-advisor.toml, else of .git, else of `config`."""
    settings_file = settings.find(config.parent)
    if settings_file is not None:
        return settings_file.parent
    real = Path(os.path.realpath(config))
    return next(
        (folder for folder in real.parents if (folder / ".git").exists()), real.parent
    )


def state_folder(root: Path) -> Path:
    """Make the git-ignored state folder of a project. Raises StateUnusableError."""
    inside = root / STATE_FOLDER
    try:
        return _made(inside)
    except OSError as problem:
        try:
            return _made(_elsewhere(root))
        except OSError as also:
            msg = (
                f"Originals and measurements can be kept neither in {inside} ({problem.strerror}) "
                f"nor elsewhere ({also}). Set XDG_STATE_HOME to a folder that may be written."
            )
            raise StateUnusableError(msg) from also


def existing_folders(root: Path) -> list[Path]:
    """Existing state folders of the project at `root`."""
    folders = [root / STATE_FOLDER]
    with contextlib.suppress(OSError):
        folders.append(_elsewhere(root))
    return [folder for folder in folders if os.path.isdir(folder)]  # noqa: PTH112  a Path may raise


def _elsewhere(root: Path) -> Path:
    """Folder below XDG_STATE_HOME. Raises OSError without a home."""
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not named.is_absolute():
        named = Path(os.path.expanduser("~/.local/state"))  # noqa: PTH111  Path raises
    if not named.is_absolute():
        msg = f"user {os.getuid()} has no home"
        raise OSError(msg)
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:12]
    return named / "gpu-advisor" / f"{root.name[:60]}-{digest}"


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    facts = folder.stat()
    if facts.st_uid == os.geteuid() and facts.st_mode & 0o077:
        with contextlib.suppress(OSError):
            folder.chmod(0o700)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(13, "the folder is read-only", str(folder))
    ignore = folder / ".gitignore"
    if not ignore.exists() or not ignore.stat().st_size:
        ignore.write_bytes(b"*\n")
    return folder
