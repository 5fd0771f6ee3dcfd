"""Programs of torch's CUDA build over simulated cards, measured as users' programs are."""

import json
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from advisor.model import Candidate, Failure, MeasurePlan, Run, Trial
from tests import fakegpu
from tests.fakegpu import Cards
from tests.support.processes import Done, ran

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "fixtures" / "programs"
PLAN = MeasurePlan(measure_s=1.5, min_steps=8)
LIMIT_S = 180.0


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


Measure = Callable[..., Measured]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder needs the CUDA build, or says why it is not there."""
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    why = fakegpu.missing() if here else None
    for item in here:
        for mark in (pytest.mark.cuda_build, pytest.mark.slow, pytest.mark.nightly):
            item.add_marker(mark)
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


def environment(cards: Cards, **own: str) -> Mapping[str, str]:
    """Of a program over `cards`: torch as it is, and this checkout's packages."""
    path = os.pathsep.join([str(ROOT), str(PROGRAMS)])
    base = {**os.environ, "PYTHONPATH": path, "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
    return cards.environment({**base, **own})


@pytest.fixture
def measured(tmp_path: Path, request: pytest.FixtureRequest) -> Measure:
    """Runs a fixture program in one trial over simulated cards."""

    def run(
        program: str,
        *words: str,
        cards: tuple[str, ...] = ("rtx-3090",),
        plan: MeasurePlan = PLAN,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Measured:
        shown = Cards(*cards, **options)
        request.addfinalizer(lambda: shown.__exit__())
        scratch = tmp_path / f"trial-{len(list(tmp_path.iterdir()))}"
        (scratch / "project").mkdir(parents=True)
        trial = Trial(
            id="001",
            purpose="profile",
            label="original",
            candidate=Candidate(),
            command=(str(fakegpu.PYTHON), str(PROGRAMS / program), *words),
            cwd=str(scratch / "project"),
            scratch=str(scratch),
            env=tuple((env or {}).items()),
            plan=plan,
            start_limit_s=LIMIT_S,
            hang_limit_s=LIMIT_S,
            total_limit_s=LIMIT_S,
        )
        asked, answer = scratch / "asked", scratch / "answer"
        asked.write_bytes(pickle.dumps(trial))
        command = (sys.executable, "-m", "tests.fakegpu.trial", str(asked), str(answer))
        done = ran(*command, cwd=ROOT, env=environment(shown), timeout=LIMIT_S)
        assert done.returncode == 0, done.stderr
        result = pickle.loads(answer.read_bytes())
        said = result.stdout_tail if isinstance(result, Run) else result.log_tail
        lines = [line for line in said.splitlines() if line.startswith("{")]
        return Measured(result=result, cards=shown, own=tuple(map(json.loads, lines)))

    return run


@pytest.fixture
def tool(tmp_path: Path) -> Callable[..., Done]:
    """Calls gpu-advisor over simulated cards, in `tmp_path`."""

    def call(cards: Cards, *words: str, timeout: float = LIMIT_S, **own: str) -> Done:
        command = (sys.executable, "-m", "advisor", *words)
        env = environment(cards, GPU_ADVISOR_RUNTIME_DIR=str(tmp_path), **own)
        return ran(*command, cwd=tmp_path, env=env, timeout=timeout)

    return call
