"""Gates on real commits, worktrees and setups, whose processes are no processes: quick."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.gate.options import add_arguments, check
from advisor.gate.records import HostEntry
from advisor.gate.workbench import Place
from advisor.model import Failure, Shares
from advisor.sandbox.capabilities import FORCED
from tests.runs import a_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from advisor.gate.options import Options
    from advisor.gate.records import GateRecord
    from advisor.model import Run, Trial


@dataclass
class Reads:
    """An engine on which a commit's rate is what its file `rate` says, or that of its command's
    name (`x.rate`); none: it does not run. What is in its file `said` is its output; in `waits`,
    the share of its time that it waits for data; in `breaks`, the first run that breaks."""

    runs: int = 0

    def wait_until_quiet(self, limit_s: float) -> tuple[()]:
        del limit_s
        return ()

    def run(self, trial: Trial) -> Run | Failure:
        self.runs += 1
        own = Path(trial.cwd, f"{trial.command[-1]}.rate")
        text = (own if own.exists() else Path(trial.cwd, "rate")).read_text()
        said = Path(trial.cwd, "said")
        logs = Path(trial.scratch, "logs")
        logs.mkdir(parents=True)
        (logs / "stdout.log").write_bytes(said.read_bytes() if said.exists() else b"")
        breaks = Path(trial.cwd, "breaks")
        if not text or (breaks.exists() and self.runs >= int(breaks.read_text())):
            return Failure(
                trial_id=trial.id, purpose="gate", label=trial.label, candidate_key="",
                kind="crash", evidence="it broke", next_step="", exit_code=3,
            )  # fmt: skip
        rate = float(text) * (1 + self.runs % 7 / 5000)
        waits = Path(trial.cwd, "waits")
        share = float(waits.read_text()) if waits.exists() else None
        shares = Shares(data_wait=share, compute=None if share is None else 1 - share)
        return a_run(
            trial_id=trial.id, purpose="gate", label=trial.label, units_per_s=rate, shares=shares
        )


def in_process(
    cwd: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    say: Callable[[str], None] = lambda _: None,
) -> Callable[..., GateRecord]:
    """Calls a mode of `module` with flags, in `cwd`, on that engine; a setup is not isolated."""

    @contextlib.contextmanager
    def machine(*_: object) -> Iterator[tuple[Reads, HostEntry]]:
        yield Reads(), HostEntry()

    monkeypatch.setattr(module, "machine_to_itself", machine)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(FORCED, "guard")

    def call(mode: Callable[[Options, Place], GateRecord], *args: str) -> GateRecord:
        what = [] if "--workload" in args else ["--command", "x"]
        scratch = Path(tempfile.mkdtemp(dir=tmp_path))
        place = Place(cwd=cwd, scratch=scratch, cancel=threading.Event(), say=say)
        return mode(asked_for(*what, *args), place)

    return call


def asked_for(*flags: str) -> Options:
    """What `gpu-advisor gate` makes of its flags."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return check(parser.parse_args(flags), None)
