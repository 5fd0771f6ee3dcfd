"""Trials of torch's CUDA build over simulated cards, and the cards' own account beside them."""

import itertools
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.model import Candidate, Failure, MeasurePlan, Run, Trial
from tests import fakegpu
from tests.fakegpu import Cards

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "fixtures" / "programs"
PLAN = MeasurePlan(measure_s=1.5, min_steps=8)
LIMIT_S = 180.0
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node")
TWENTY = (
    "plain", "plain --batch 8", "plain --width 256", "matrices", "amp", "bf16", "timed --ms 8",
    "blocking --ms 3 --host 2 --side 256", "prefetched --ms 5", "workers", "slow_store --batch 16",
    "accumulated --ms 8", "recurrent", "launches", "graphed", "replayed", "inference --ms 5",
    "runs_ahead --ms 5", "threaded --ms 5", "timed --ms 20 --host 5",
)  # fmt: skip
"""Words of `cuda_zoo.py`."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A trial, and what its cards really did meanwhile."""

    result: Run | Failure
    cards: Cards
    own: tuple[dict[str, Any], ...]
    """The program's own account: JSON objects that it printed, one a line."""

    @property
    def run(self) -> Run:
        assert isinstance(self.result, Run), self.result
        return self.result

    def busy(self, engine: str = "compute", card: int = 0) -> float:
        """Share of the measured window in which the card's engine worked."""
        return self.cards.busy_share(engine, self.run.window_start, self.run.window_end, card=card)

    def own_rate(self) -> float | None:
        """Samples a second by the program's own events, over the measured window.

        Its last mark may come before the window's end, since the program ends there.
        """
        start = self.run.window_start
        end = min(self.run.window_end, self.own[-1]["time"] if self.own else 0.0)
        before, after = self._done_by(start), self._done_by(end)
        if before is None or after is None or end <= start:
            return None
        return (after - before) / (end - start)

    def _done_by(self, when: float) -> float | None:
        """Samples done by then, by a straight line between two of the program's marks."""
        for one, other in itertools.pairwise(self.own):
            if one["time"] <= when <= other["time"] and one["time"] < other["time"]:
                passed = (when - one["time"]) / (other["time"] - one["time"])
                return float(one["done"] + passed * (other["done"] - one["done"]))
        return None


def environment(cards: Cards, **own: str) -> dict[str, str]:
    """Of a program over `cards`: torch as it is, and this checkout's packages."""
    path = os.pathsep.join([str(ROOT), str(PROGRAMS)])
    base = {**os.environ, "PYTHONPATH": path, "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
    return cards.environment({**base, **own})


def measure(
    folder: Path,
    cards: Cards,
    program: str,
    *words: str,
    plan: MeasurePlan = PLAN,
    env: Mapping[str, str] | None = None,
    ranks: int = 1,
) -> Measured:
    """Measure a fixture program, as one job of several `ranks`, in one trial below `folder`."""
    (folder / "project").mkdir(parents=True)
    job = (*TORCHRUN, str(ranks)) if ranks > 1 else ()
    trial = Trial(
        id="001",
        purpose="profile",
        label="original",
        candidate=Candidate(),
        command=(str(fakegpu.PYTHON), *job, str(PROGRAMS / program), *words),
        cwd=str(folder / "project"),
        scratch=str(folder),
        env=tuple((env or {}).items()),
        plan=plan,
        start_limit_s=LIMIT_S,
        hang_limit_s=LIMIT_S,
        total_limit_s=LIMIT_S,
    )
    asked, answer = folder / "asked", folder / "answer"
    asked.write_bytes(pickle.dumps(trial))
    command = (sys.executable, "-m", "tests.fakegpu.trial", str(asked), str(answer))
    done = subprocess.run(
        command, cwd=ROOT, env=environment(cards), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    result = pickle.loads(answer.read_bytes())
    said = result.stdout_tail if isinstance(result, Run) else result.log_tail
    lines = [line for line in said.splitlines() if line.startswith("{")]
    return Measured(result=result, cards=cards, own=tuple(map(json.loads, lines)))
