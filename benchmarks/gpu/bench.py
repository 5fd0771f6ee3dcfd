"""What every step is given: the card's facts, a place to work, and programs under the probe."""

import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from advisor.model import Candidate, Failure, MeasurePlan, Run, Trial
from advisor.runner.trial import run_trial
from benchmarks.gpu.record import Line

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ("-m", "benchmarks.gpu.program")
OWN_STEPS = re.compile(r"own steps: (\[.*\])")


@dataclass(kw_only=True)
class Bench:
    """One run of all steps."""

    folder: Path
    """Gone afterwards."""
    until: float
    """`time.monotonic()` at which it must be over."""
    simulated: bool
    made: bool = False
    """The card is simulated below the CUDA API: its host's speed tells nothing."""
    short: bool
    """Simulated, and all steps: two minutes on two cores. Rates of whole programs
    mean nothing there."""
    environ: Mapping[str, str]
    own_time: Mapping[str, str]
    """Of programs of one thread over simulated cards: what others take does not show in them."""
    card: dict[str, Any] = field(default_factory=dict)
    """What torch says of the first card."""
    step: str = ""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def left_s(self) -> float:
        return self.until - time.monotonic()

    @property
    def total_gib(self) -> float:
        return float(self.card.get("total_gib", 0.0))

    @property
    def free_gib(self) -> float:
        return float(self.card.get("free_gib", 0.0))

    def line(self, what: str, expected: str, found: str, ok: bool | None, mend: str = "") -> Line:
        """A line of the step that runs."""
        return Line(step=self.step, what=what, expected=expected, found=found, ok=ok, mend=mend)

    def python(self, *words: str, limit_s: float = 120.0, cwd: Path | None = None,
               **environ: str) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """A process of this interpreter, within what time is left. Raises TimeoutExpired."""
        return subprocess.run(
            [sys.executable, *words],
            cwd=cwd or ROOT,
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            check=False,
            timeout=max(1.0, min(limit_s, self.left_s)),
        )

    def measured(self, *words: str, limit_s: float = 90.0, environ: Mapping[str, str] | None = None,
                 telemetry: bool = True, **plan: Any) -> Run | Failure:  # fmt: skip
        """The loop of `program` in one process under the probe."""
        number = next(self._numbers)
        trial = Trial(
            id=f"{number:03d}",
            purpose="profile",
            label=" ".join(words),
            candidate=Candidate(),
            command=(sys.executable, *PROGRAM, *words),
            cwd=str(ROOT),
            scratch=str(self.folder / f"trial-{number}"),
            env=tuple({**self.environ, **self.own_time, **(environ or {})}.items()),
            plan=MeasurePlan(**{"measure_s": 1.5, "min_steps": 8, **plan}),
            start_limit_s=limit_s,
            hang_limit_s=limit_s,
            total_limit_s=max(1.0, min(limit_s, self.left_s)),
            caches=str(self.folder / "caches"),
        )
        if telemetry:
            return run_trial(trial)
        with mock.patch("advisor.machine.recording.shown_devices", return_value=(None, [], "off")):
            return run_trial(trial)


def environ_of(folder: Path, *, alone: bool) -> dict[str, str]:
    """Of every process: the checkout on the path; `alone`: nobody else is waited for or seen."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environ = {**os.environ, "PYTHONPATH": path, "NO_COLOR": "1"}
    if alone:
        environ |= {"GPU_ADVISOR_RUNTIME_DIR": str(folder), "GPU_ADVISOR_OTHERS": "unseen"}
        environ |= {"OMP_NUM_THREADS": "1"}
    return environ


def own_rate(run: Run) -> float | None:
    """Samples a second by the program's own account, over the window that was measured."""
    found = OWN_STEPS.search(run.stdout_tail)
    if found is None:
        return None
    steps = json.loads(found[1])
    samples = _at(steps, run.window_end) - _at(steps, run.window_start)
    return samples / (run.window_end - run.window_start)


def _at(steps: list[tuple[float, int]], when: float) -> float:
    """Samples done by then, between two steps by a straight line."""
    for (t0, n0), (t1, n1) in itertools.pairwise(steps):
        if t0 <= when <= t1 and t1 > t0:
            return n0 + (n1 - n0) * (when - t0) / (t1 - t0)
    return float(steps[-1][1] if when > steps[-1][0] else steps[0][1])


def description(result: Run | Failure) -> str:
    """A result in a few words, for a line that did not get the one it wanted."""
    if isinstance(result, Run):
        return f"a run at {result.units_per_s:.4g}/s"
    return f"{result.kind}: {result.evidence}"


def last_json(text: str) -> dict[str, Any]:
    """The JSON object in the last line of `text`. Raises ValueError."""
    found: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    return found
