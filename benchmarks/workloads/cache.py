"""Where the workloads keep their generated data, outside the repository."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path


def cache_dir(name: str) -> Path:
    """`$WORKLOADS_CACHE/name`, by default under ~/.cache; made if it is not there."""
    root = os.environ.get("WORKLOADS_CACHE", "~/.cache/gpu-advisor-workloads")
    folder = Path(root).expanduser() / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def made_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """`folder`, which `make` fills if it is not there; whole, though two runs may make it."""
    if not folder.exists():
        partial = folder.with_name(f"{folder.name}.{os.getpid()}")
        partial.mkdir()
        make(partial)
        try:
            partial.rename(folder)
        except OSError:  # another run was first
            shutil.rmtree(partial)
    return folder
