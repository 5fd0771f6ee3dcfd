"""Trials that write in many ways, under one kind of isolation."""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from advisor.model import MeasurePlan, Trial
from advisor.runner.trial import run_trial
from advisor.sandbox.capabilities import FORCED
from advisor.sandbox.policy import Kind
from tests.runs import a_trial
from tests.support import ways

DAEMON_S = 1.0
"""Until a daemon would have written, had it outlived its trial."""


class Outcome(NamedTuple):
    views: dict[str, str | None]
    """Of each way: None if the program could read back what it wrote, else what it said."""
    touched: tuple[str, ...]
    """Ways after which a file's content, mode, owner, times, attributes or links are others."""
    left: tuple[str, ...]
    """What lies in shared places afterwards."""


def outcome(kind: Kind, names: list[str]) -> Outcome:
    """One trial that writes in all these ways, under `kind`."""
    with tempfile.TemporaryDirectory(prefix="ways-") as folder:
        root, scratch = Path(folder, "user"), Path(folder, "scratch")
        project = ways.lay_out(root, names)
        file = scratch / "results.json"
        before = ways.seen(root)
        run_trial(
            trial([ways.__file__, str(file), *names], kind=kind, cwd=project, scratch=scratch)
        )
        if "a daemon that writes later" in names:
            time.sleep(DAEMON_S)
        after = ways.seen(root)
        views: dict[str, str | None] = json.loads(file.read_text())
    changed = [path for path in {**before, **after} if before.get(path) != after.get(path)]
    touched = [name for name in names if any(ways.belongs(path, name) for path in changed)]
    left = tuple(path for path in ways.LEFT_OUTSIDE if Path(path).exists())
    for path in left:
        Path(path).unlink()
    return Outcome(views, tuple(touched), left)


def trial(words: list[str], *, kind: Kind, cwd: Path, scratch: Path) -> Trial:
    """One run of Python to its own end."""
    return a_trial(
        sys.executable, *words, label=kind, cwd=str(cwd), scratch=str(scratch),
        env=((FORCED, kind),), plan=MeasurePlan(mode="whole"),
    )  # fmt: skip
