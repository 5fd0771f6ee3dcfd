"""`gpu-advisor revert CONFIG ...`: the originals, byte for byte."""

import argparse
import contextlib
import sys
from pathlib import Path

from advisor import config as documents, numbers
from advisor.config.originals import Versions, remove_candidates, undo
from advisor.config.swap import read_bytes
from advisor.errors import RevertConflictError
from advisor.state import existing_folders, project_root


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "configs",
        type=Path,
        nargs="+",
        metavar="CONFIG",
        help="configs that `optimize` rewrote",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="go back to before the first optimize, not only the last",
    )


def run(args: argparse.Namespace, _command: list[str] | None) -> int:
    for config, undone in revert(args.configs, everything=args.all).items():
        outcome = f"{numbers.many(undone, 'rewrite')} taken back"
        if not undone:
            outcome = "nothing to take back; its last rewrite is not in the file"
        sys.stdout.write(f"{config}: {outcome}\n")
    return 0


def revert(configs: list[Path], *, everything: bool = False) -> dict[Path, int]:
    """Revert rewrites of `configs` after a look at all; return their numbers.

    0: the last rewrite is not in the file: its call was killed, or somebody undid it.
    """
    kept_in = {config: _kept_in(config) for config in configs}
    with contextlib.ExitStack() as stack:
        plans = []
        for config, versions in kept_in.items():
            stack.enter_context(versions.held())
            sys.stderr.writelines(f"gpu-advisor: {note}\n" for note in versions.recover())
            remove_candidates(config)
            kept = versions.all()
            undone = list(reversed(kept if everything else kept[-1:]))
            current = content = read_bytes(config)
            for version in undone:
                content = undo(version, content, config)
            plans.append((config, versions, undone, current, content))
        for config, versions, undone, current, content in plans:
            if content != current:
                documents.write_atomic(config, content, current)
            for version in undone:
                versions.forget(version)
    return {config: len(undone) for config, _, undone, _, _ in plans}


def _kept_in(config: Path) -> Versions:
    """Originals of `config`. Raises RevertConflictError."""
    read_bytes(config)
    for state in existing_folders(project_root(config)):
        versions = Versions(state, config)
        if versions.all():
            return versions
    msg = (
        f"{config} was never rewritten by gpu-advisor, or was reverted already. Name the file "
        "that was tuned."
    )
    raise RevertConflictError(msg)
