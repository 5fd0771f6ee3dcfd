"""`gpu-advisor revert CONFIG`: the original, byte for byte."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from advisor import config as documents
from advisor import numbers
from advisor.config.files import read_bytes
from advisor.config.originals import Versions, remove_candidates, undo
from advisor.errors import RevertConflictError
from advisor.state import existing_folders, project_root

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `gpu-advisor revert`."""
    parser.add_argument("config", type=Path, help="the config that `optimize` rewrote")
    parser.add_argument(
        "--all", action="store_true", help="go back to before the first optimize, not only the last"
    )


def run(args: argparse.Namespace, command: list[str] | None) -> int:
    """Put back the last rewrite, or all of them.

    Raises RevertConflictError when unsafe.
    """
    del command
    undone = revert(args.config, everything=args.all)
    if undone:
        outcome = f"{numbers.many(undone, 'rewrite')} taken back"
    else:
        outcome = (
            "nothing to take back; its last rewrite was never put in place, or was undone by hand"
        )
    sys.stdout.write(f"{args.config}: {outcome}\n")
    return 0


def revert(config: Path, *, everything: bool = False) -> int:
    """Revert the rewrites of `config`; return their number.

    0 if the last rewrite is not in the file: an earlier call was killed before it replaced the
    config, or somebody undid the change. All of them are taken back in one step, or none.
    """
    read_bytes(config)
    kept_in = [
        versions
        for state in existing_folders(project_root(config))
        if (versions := Versions(state, config)).all()
    ]
    if not kept_in:
        msg = (
            f"{config} was never rewritten by gpu-advisor, or was reverted already. Name the file "
            "that was tuned."
        )
        raise RevertConflictError(msg)
    versions = kept_in[0]
    with versions.held():
        for note in versions.recover():
            sys.stderr.write(f"gpu-advisor: {note}\n")
        remove_candidates(config)
        kept = versions.all()
        undone = list(reversed(kept if everything else kept[-1:]))
        current = content = read_bytes(config)
        for version in undone:
            content = undo(version, content, config)
        if content != current:
            documents.write_atomic(config, content, current)
        for version in undone:
            versions.forget(version)
    return len(undone)
