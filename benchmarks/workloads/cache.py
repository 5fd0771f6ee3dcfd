"""Where the workloads keep their generated data, outside the repository."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir(name: str) -> Path:
    """`$WORKLOADS_CACHE/name`, by default under ~/.cache; made if it is not there."""
    root = os.environ.get("WORKLOADS_CACHE", "~/.cache/gpu-advisor-workloads")
    folder = Path(root).expanduser() / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder
