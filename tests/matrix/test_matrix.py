"""Kinds of programs that people bring, unchanged: each rate is that of the program's own account.

`tests/probe/test_loops.py` has the plain ones. Batch, workers and ranks are those it really ran
with.
"""

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from advisor.model import MeasurePlan
from tests import light, warm
from tests.probe.program import PROGRAMS, Begin, python, true_rate
from tests.support.processes import free_port, ran

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = PROGRAMS.with_name("published")
WITHIN = 0.03
PLAN = MeasurePlan(measure_s=0.8, min_steps=10)
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", light.WHOLE: "1"}
START_S = 150.0
"""A framework takes a while to import."""


@dataclass(frozen=True, slots=True)
class Case:
    """One program, and what is known of it."""

    command: str
    """Arguments of Python, `{port}` for a free port; FOLDER/SCRIPT is a published program."""
    batch: float
    """Of one loader batch or one root forward."""
    workers: int | None = 0
    """None: there is no loader."""
    ranks: int = 1
    forwards_per_unit: float | None = None
    """None: not looked at."""
    needs: str | None = None
    """Framework that has to be installed."""
    nightly: bool = False
    """Takes half a minute or more; `test_loops` has two ranks and `test_ranks` the launcher."""


LOOPS = {
    "skip": (7, 0),
    "gan": (9, None),
    "closure": (9, None),
    "validated": (9, None),
    "anew": (9, None),
}
"""Loops of `matrix_loops.py`: batch and workers."""
CV = "accelerate_cv/cv_example.py --config config.yaml"
ALONE = (
    *(Case(f"matrix_loops.py {name}", batch, workers) for name, (batch, workers) in LOOPS.items()),
    Case("matrix_inner.py 30 4", 4),
    Case("lightning_cli/main.py fit --config config.yaml", 24, needs="lightning"),
    Case("hf_trainer/run_clm.py args.json", 4, needs="transformers"),
    Case("matrix_generate.py", 4, forwards_per_unit=20, needs="transformers"),
    Case("matrix_generate.py bare", 4, None, needs="transformers"),
    Case("matrix_generate.py beams", 4, None, needs="transformers"),
    Case(CV, 16, needs="accelerate"),
)
"""Commands that are one Python process."""
TORCHRUN = "-m torch.distributed.run --nproc-per-node 2 --master-port {port}"
LAUNCH = "-m accelerate.commands.launch --cpu --num_processes 1"
SEVERAL = (
    Case(f"{TORCHRUN} ok_ranks.py", 20, ranks=2, nightly=True),
    Case("ok_ranks.py spawn", 20, ranks=2, nightly=True),
    Case(f"{LAUNCH} {CV}", 16, needs="accelerate", nightly=True),
)


def each(cases: Iterable[Case]) -> pytest.MarkDecorator:
    """Parametrizes by `cases`, each with its markers."""
    params = []
    for case in cases:
        marks = [pytest.mark.frameworks if case.needs else pytest.mark.slow]
        marks += [pytest.mark.nightly] if case.nightly else []
        params.append(pytest.param(case, id=case.command, marks=marks))
    return pytest.mark.parametrize("case", params)


def skip_without(case: Case) -> None:
    if case.needs is not None and importlib.util.find_spec(case.needs) is None:
        pytest.skip(f"{case.needs} is not installed: pip install -e '.[frameworks]'")


def laid_out(command: str, folder: Path) -> list[str]:
    """Words of a command; a published program is copied into `folder` with its files."""
    words = []
    for word in command.split():
        name, slash, script = word.rpartition("/")
        if slash and word.endswith(".py"):
            shutil.copytree(PUBLISHED / name, folder, dirs_exist_ok=True)
            shutil.copy(PUBLISHED / "step_clock.py", folder)
            words.append(str(folder / script))
        else:
            words.append(str(PROGRAMS / word) if word.endswith(".py") else word)
    return words


@pytest.fixture(scope="module")
def begin() -> Iterator[Begin]:
    """Begins programs that find the whole of torch imported."""
    with warm.Server("torch", {**os.environ, **ENVIRONMENT}) as server:
        yield lambda command, **how: server.start(command[1:], **how)


@each(ALONE)
def test_the_probe_measures_the_program_as_it_measures_itself(case, tmp_path, begin) -> None:
    skip_without(case)
    words = laid_out(case.command, tmp_path / "cwd")
    outcome = python(tmp_path, *words, env=ENVIRONMENT, plan=PLAN, begin=begin, timeout_s=START_S)
    effects = outcome.measured.effects
    rate = outcome.measured.units / (outcome.measured.window_end - outcome.measured.window_start)
    assert rate == pytest.approx(outcome.true_rate(), rel=WITHIN)
    assert effects.workers == case.workers
    assert effects.batch == case.batch
    if case.forwards_per_unit is not None:
        assert effects.forwards_per_unit == case.forwards_per_unit


@each(SEVERAL)
def test_the_command_measures_the_program_as_it_measures_itself(case, tmp_path) -> None:
    """Processes that a launcher starts; windows of ranks lie up to some tenths apart."""
    skip_without(case)
    port = str(free_port())
    words = laid_out(case.command.format(port=port), tmp_path)
    own = {
        "PYTHONPATH": str(ROOT),
        "TRUTH": str(tmp_path / "truth"),
        "PORT": port,
        "GPU_ADVISOR_ISOLATION": "guard",  # the truth is a file that the program writes
    }
    profile_it = [sys.executable, "-m", "advisor", "profile", "--json", "--window", "3s", "--"]
    env = {**os.environ, **ENVIRONMENT, **own}
    done = ran(*profile_it, sys.executable, *words, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    profile = json.loads(done.stdout)
    start, end = profile["window"]["start"], profile["window"]["end"]
    rates = [true_rate(path, start, end) for path in tmp_path.glob("truth*") if path.stat().st_size]
    assert profile["units"] / (end - start) == pytest.approx(sum(rates), rel=WITHIN)
    found = (profile["batch"], profile["workers"], profile["ranks"])
    assert found == (case.batch, case.workers, case.ranks)
    assert profile["effects"]["group_size"] == case.ranks
