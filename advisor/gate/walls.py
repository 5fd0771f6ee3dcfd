"""What stands between base, head and the job that measures them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.executor.engines import scratch_dir
from advisor.gate.git import git
from advisor.sandbox.capabilities import ASKED_FOR, allow_except, detect_isolation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from advisor.gate.base import Checkout
    from advisor.sandbox.policy import SandboxPolicy

OWN_FOLDER = "gpu-advisor"
"""Of RUNNER_TEMP: the environment that we run in, and the report."""


def unprotected(cwd: Path) -> str:
    """What base and head could reach here, and why; empty where an isolation holds.

    Raises UsageError where an isolation is asked for that does not hold.
    """
    offer = detect_isolation(str(cwd))
    if offer.kind != "guard":
        return ""
    return (
        "base and head can write to each other's files and to those that steer this job, and read "
        f"the environment it began with ({offer.why_not_better or ASKED_FOR})"
    )


def notes(cwd: Path, withheld: Sequence[str], *, allow_writes: bool = False) -> list[str]:
    """What a reader must know of it."""
    found = []
    if allow_writes and detect_isolation(str(cwd)).kind == "landlock":
        found.append(
            "--allow-writes: base and head could change what is in their checkouts, but for .git; "
            "so nothing could be made beside .git"
        )
    if said := unprotected(cwd):
        found.append(f"not isolated: {said}")
    if withheld:
        found.append(f"withheld from base and head: {', '.join(withheld)} (--keep-env hands over)")
    if git(cwd, "config", "--local", "--get-regexp", r"^http\..*extraheader$"):
        found.append(
            "this checkout keeps a token in .git/config, which base and head can read: check it "
            "out with persist-credentials: false"
        )
    return found


def of_setup(
    checkout: Checkout,
    others: Iterable[Path],
    scratch: Path,
    ours: Path,
    steering: Sequence[Path],
    environ: Mapping[str, str] = os.environ,
) -> SandboxPolicy:
    """The isolation of a setup: it may write where it likes, but not to `others`, the tops of
    checkouts that are not its own, to `ours`, to what other gates of this host measure or to the
    files that steer the job. `scratch` is its own.
    """
    protected = [top for top in others if top != checkout.top]
    protected += [ours, *scratch_dir.calls_in(ours.parent)]
    protected += [path.parent for path in steering]
    if environ.get("RUNNER_TEMP"):
        protected.append(Path(environ["RUNNER_TEMP"], OWN_FOLDER))
    return allow_except(
        detect_isolation(str(checkout.cwd)),
        map(str, protected),
        passes=[str(checkout.top.resolve())],
        scratch=scratch,
    )
