"""`gpu-advisor revert CONFIG`: give the original back, byte for byte."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from advisor import documents, settings
from advisor.errors import ConfigMissingError, RevertConflictError
from advisor.history import STATE_FOLDER
from advisor.versions import Versions, undo

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `gpu-advisor revert`."""
    parser.add_argument("config", type=Path, help="the config that `optimize` rewrote")
    parser.add_argument(
        "--all", action="store_true", help="go back to before the first optimize, not only the last"
    )


def run(args: argparse.Namespace, command: list[str] | None) -> int:
    """Put back the last rewrite, or all of them. Raises RevertConflictError when unsafe."""
    del command
    undone = revert(args.config, everything=args.all)
    sys.stdout.write(f"{args.config}: {undone} rewrite{'s' * (undone != 1)} of ours taken back\n")
    return 0


def revert(config: Path, *, everything: bool = False) -> int:
    """Take back the last rewrite of `config`, or every one; returns how many."""
    if not config.exists():
        msg = f"{config} is not there. Name the config that was optimized."
        raise ConfigMissingError(msg)
    versions = Versions(project_root(config) / STATE_FOLDER, config)
    kept = versions.all()
    if not kept:
        msg = f"{config} was never rewritten by gpu-advisor, or was reverted already."
        raise RevertConflictError(msg)
    count = 0
    for version in reversed(kept if everything else kept[-1:]):
        current = config.read_bytes()
        documents.write_atomic(config, undo(version, config), current)
        versions.forget(version)
        count += 1
    return count


def project_root(config: Path) -> Path:
    """Where the state folder of `config` lies: beside gpu-advisor.toml, else beside .git, else
    beside the config."""
    found = settings.find(config.parent)
    if found is not None:
        return found.parent
    for folder in config.resolve().parents:
        if (folder / ".git").exists():
            return folder
    return config.resolve().parent
