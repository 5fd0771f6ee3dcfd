"""Trials that write in many ways, under one kind of isolation."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from advisor.model import Candidate, Failure, MeasurePlan, Run, Trial
from advisor.runner import run_trial
from advisor.sandbox.capabilities import FORCED
from tests.support import ways

if TYPE_CHECKING:
    from advisor.sandbox.policy import Kind

DAEMON_S = 1.0
"""Until a daemon would have written, had it outlived its trial."""


class WayResult(NamedTuple):
    """What became of one way under one kind."""

    intact: bool
    """Every file that was there: content, mode, owner, times, attributes, links."""
    untouched: bool
    """And nothing was added or removed beside it."""
    view: str | None
    """None if the program could read back what it wrote, else what it said."""


class Outcome(NamedTuple):
    results: dict[str, WayResult]
    left: tuple[str, ...]
    """What lies in shared places afterwards."""
    result: Run | Failure


def outcome(kind: Kind, names: list[str]) -> Outcome:
    """One trial that writes in all these ways, under `kind`."""
    with tempfile.TemporaryDirectory(prefix="ways-") as folder:
        root, scratch = Path(folder, "user"), Path(folder, "scratch")
        project = ways.lay_out(root, names)
        file = scratch / "results.json"
        before = ways.seen(root)
        result = run_trial(
            trial([ways.__file__, str(file), *names], kind=kind, cwd=project, scratch=scratch)
        )
        if "a daemon that writes later" in names:
            time.sleep(DAEMON_S)
        after = ways.seen(root)
        views: dict[str, str | None] = json.loads(file.read_text())
    results = {}
    for name in names:
        mine = [path for path in before if ways.belongs(path, name)]
        others = [path for path in after if ways.belongs(path, name) and path not in before]
        intact = all(ways.kept(before[path], after.get(path)) for path in mine)
        untouched = not others and all(after.get(path) == before[path] for path in mine)
        results[name] = WayResult(intact, untouched, views[name])
    left = tuple(path for path in ways.LEFT_OUTSIDE if Path(path).exists())
    for path in left:
        Path(path).unlink()
    return Outcome(results, left, result)


def trial(words: list[str], *, kind: Kind, cwd: Path, scratch: Path) -> Trial:
    """One run of Python to its own end."""
    return Trial(
        id="1",
        purpose="baseline",
        label=kind,
        candidate=Candidate(),
        command=(sys.executable, *words),
        cwd=str(cwd),
        scratch=str(scratch),
        env=((FORCED, kind),),
        plan=MeasurePlan(mode="whole"),
    )
