"""Kinds of programs that people bring, and their measurement."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.truth import true_rate

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "fixtures" / "programs"
PYTHON = sys.executable


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One program, and what is known of it."""

    name: str
    command: tuple[str, ...]
    """Arguments; a name of a fixture program stands for its path, `{port}` for a free port."""
    batch: float | None
    """Of one loader batch or one root forward; None: it varies."""
    workers: int | None
    """None: there is no loader."""
    ranks: int = 1
    forwards_per_unit: float | None = None
    """None: not looked at."""
    needs: str | None = None
    """Framework that has to be installed."""
    tolerance: float = 0.03

    def missing(self) -> str | None:
        """Why it cannot run here, or None."""
        if self.needs is not None and importlib.util.find_spec(self.needs) is None:
            return f"{self.needs} is not installed: pip install -e '.[frameworks]'"
        return None


TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "{port}")
LAUNCH = ("-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1")

CASES = (
    Case(name="train", command=(PYTHON, "matrix_train.py"), batch=12, workers=0),
    Case(name="train, 2 workers", command=(PYTHON, "matrix_train.py", "2"), batch=12, workers=2),
    Case(name="train + validation", command=(PYTHON, "ok_loaders.py", "60"), batch=24, workers=0),
    Case(
        name="train, accumulation",
        command=(PYTHON, "ok_train.py", "--accumulate", "4", "--batch", "8"),
        batch=8,
        workers=0,
    ),
    Case(name="train, lengths vary", command=(PYTHON, "matrix_lengths.py"), batch=None, workers=0),
    Case(name="train, no loader", command=(PYTHON, "ok_no_loader.py"), batch=12, workers=None),
    Case(
        name="inference",
        command=(PYTHON, "matrix_infer.py", "loader", "1"),
        batch=5,
        workers=1,
    ),
    Case(
        name="inference, no loader",
        command=(PYTHON, "matrix_infer.py", "list"),
        batch=1,
        workers=None,
    ),
    Case(
        name="sampler",
        command=(PYTHON, "ok_sampler.py", "40", "3"),
        batch=3,
        workers=0,
        forwards_per_unit=40,
    ),
    Case(
        name="sampler in forward",
        command=(PYTHON, "matrix_inner.py", "30", "4"),
        batch=4,
        workers=0,
    ),
    *(
        Case(name=name, command=(PYTHON, "matrix_loops.py", how), batch=batch, workers=workers)
        for name, how, batch, workers in (
            ("train, skips batches", "skip", 7, 0),
            ("inference, skips batches", "skip-inference", 7, 0),
            ("train, zipped loaders", "zip", 6, 0),
            ("train, two loaders in turn", "switch", 8, 0),
            ("train, overflows skipped", "scaler", 11, 0),
            ("GAN, no loader", "gan", 9, None),
            ("LBFGS closure", "closure", 9, None),
            ("train, evaluated by calls", "evaluated", 9, None),
            ("train, only validation has a loader", "validated", 9, None),
            ("train, tensors in memory", "tensors", 9, None),
            ("train, taught by another", "taught", 9, None),
            ("train, validated amid updates", "between", 9, None),
            ("train, spells of other batches", "spells", 9, None),
            ("train, optimizers made anew", "anew", 9, None),
        )
    ),
    Case(name="train, padded", command=(PYTHON, "matrix_masked.py"), batch=10, workers=0),
    Case(
        name="train, generator of objects",
        command=(PYTHON, "matrix_objects.py", "train"),
        batch=7,
        workers=None,
    ),
    Case(
        name="inference, generator of objects",
        command=(PYTHON, "matrix_objects.py", "infer"),
        batch=7,
        workers=None,
    ),
    Case(
        name="torchrun",
        command=(PYTHON, *TORCHRUN, "ok_ranks.py"),
        batch=20,
        workers=0,
        ranks=2,
    ),
    Case(name="spawn", command=(PYTHON, "ok_ranks.py", "spawn"), batch=20, workers=0, ranks=2),
    Case(name="shell script", command=("bash", "matrix_stages.sh"), batch=12, workers=1),
    Case(
        name="Lightning",
        command=(PYTHON, "matrix_lightning.py"),
        batch=20,
        workers=2,
        needs="lightning",
    ),
    Case(
        name="transformers Trainer",
        command=(PYTHON, "matrix_trainer.py"),
        batch=6,
        workers=0,
        needs="transformers",
    ),
    Case(
        name="transformers generate",
        command=(PYTHON, "matrix_generate.py"),
        batch=4,
        workers=0,
        forwards_per_unit=20,
        needs="transformers",
    ),
    Case(
        name="accelerate",
        command=(PYTHON, "matrix_accelerate.py"),
        batch=10,
        workers=1,
        needs="accelerate",
    ),
    Case(
        name="accelerate launch",
        command=(PYTHON, *LAUNCH, "matrix_accelerate.py"),
        batch=10,
        workers=1,
        needs="accelerate",
    ),
    Case(
        name="accelerate evaluation",
        command=(PYTHON, "matrix_gather.py"),
        batch=18,
        workers=0,
        needs="accelerate",
    ),
    Case(
        name="Lightning predict",
        command=(PYTHON, "matrix_predict.py"),
        batch=14,
        workers=1,
        needs="lightning",
    ),
    Case(
        name="transformers pipeline",
        command=(PYTHON, "matrix_pipeline.py"),
        batch=8,
        workers=0,
        needs="transformers",
    ),
    Case(
        name="transformers processor, files",
        command=(PYTHON, "matrix_processor.py"),
        batch=3,
        workers=None,
        needs="transformers",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixResult:
    """What `profile --json` said, and what the program said over the same window."""

    profile: dict[str, Any]
    true_units_per_s: float | None
    stderr: str

    @property
    def units_per_s(self) -> float:
        """Over the whole window, validation included, as the program counts."""
        window = self.profile["window"]
        return float(self.profile["units"]) / float(window["end"] - window["start"])

    @property
    def error(self) -> float | None:
        """Relative error of the probe's count."""
        if self.true_units_per_s is None:
            return None
        return self.units_per_s / self.true_units_per_s - 1


def measure(case: Case, folder: Path, window: str = "1s") -> MatrixResult:
    """Profile `case` in `folder`, an empty one."""
    work = folder / "work"
    work.mkdir()
    port = str(_free_port())
    command = [
        str(PROGRAMS / word) if (PROGRAMS / word).is_file() else word.replace("{port}", port)
        for word in case.command
    ]
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(PYTHON).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "TRUTH": str(folder / "truth"),
        "PORT": port,
        "GPU_ADVISOR_RUNTIME_DIR": str(folder / "lock"),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "GPU_ADVISOR_ISOLATION": "guard",  # the truth is a file that the program writes
    }
    done = subprocess.run(
        [PYTHON, "-m", "advisor", "profile", "--json", "--window", window, "--", *command],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    profile = json.loads(done.stdout) if done.stdout else {"ok": False, "failure": done.stderr}
    rate = None
    if profile["ok"]:
        span = profile["window"]["start"], profile["window"]["end"]
        rate = sum(true_rate(path, *span) for path in folder.glob("truth*") if path.stat().st_size)
    return MatrixResult(profile=profile, true_units_per_s=rate, stderr=done.stderr)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
