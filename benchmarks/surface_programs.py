"""The real programs whose surfaces are recorded: where their batch and workers stand."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from advisor import config as documents
from advisor.config.argv import join
from advisor.executor.program import COMMAND_LINE, Program
from advisor.model import Candidate, Change

ROOT = Path(__file__).resolve().parents[1]
Values = dict[str, int]
"""Batch size and number of workers by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A program whose batch and workers are moved."""

    copied: tuple[tuple[str, str], ...]
    """Files and folders of this repository, and their names in the program's folder."""
    prepare: str | None = None
    """A script that makes the program's data, run there once."""
    command: tuple[str, ...]
    """Behind the interpreter."""
    config: str | None = None
    """None: batch and workers stand on the command line."""
    batch: str
    workers: str | None = None
    """Paths of the two; None: it has no loader."""
    batches: tuple[int, ...]
    counts: tuple[int, ...] = ()
    """Of workers."""
    unit: str

    @property
    def cells(self) -> list[Values]:
        """The grid; the program starts from the first."""
        named = {"batch_size": self.batches, "num_workers": self.counts}
        used = {name: values for name, values in named.items() if values}
        return [dict(zip(used, each, strict=True)) for each in itertools.product(*used.values())]


REACH = "benchmarks/reach/programs"
SPECS = {
    "dem_completion": Spec(
        copied=(("benchmarks", "benchmarks"), ("config", "config")),
        command=(
            "-m",
            "benchmarks.workloads.dem_completion.run",
            "-p",
            "test",
            "-c",
            "config/dem_completion.json",
        ),
        config="config/dem_completion.json",
        batch="datasets.test.dataloader.args.batch_size",
        workers="datasets.test.dataloader.args.num_workers",
        batches=(1, 2, 4, 8, 16),
        counts=(0, 1, 2),
        unit="tile",
    ),
    "restore": Spec(
        copied=(("tests/fixtures/programs/opt_restore.py", "restore.py"),),
        command=("restore.py", "--cfg", "infer.yaml"),
        config="infer.yaml",
        batch="inference.loader.batch_size",
        workers="inference.loader.num_workers",
        batches=(1, 2, 4, 8, 16, 32),
        counts=(0, 1, 2),
        unit="sample",
    ),
    "masks": Spec(
        copied=(
            (f"{REACH}/click_cli/cli.py", "cli.py"),
            (f"{REACH}/step_clock.py", "step_clock.py"),
        ),
        command=("cli.py", "apply", "--batch-size", "1", "--num-workers", "0", "masks"),
        batch="--batch-size",
        workers="--num-workers",
        batches=(1, 2, 4, 8, 16, 32),
        counts=(0, 1, 2),
        unit="sample",
    ),
    "relighting": Spec(
        copied=(("benchmarks", "benchmarks"), ("config", "config")),
        command=(
            "-m",
            "benchmarks.workloads.relighting.run",
            "-c",
            "config/relighting.yaml",
            "--batch-size",
            "1",
        ),
        batch="--batch-size",
        batches=(1, 2, 4, 8, 16, 32, 64),
        unit="image",
    ),
    "reviews": Spec(
        copied=(
            (f"{REACH}/list_inference/predict.py", "predict.py"),
            (f"{REACH}/list_inference/prepare.py", "prepare.py"),
            (f"{REACH}/step_clock.py", "step_clock.py"),
        ),
        prepare="prepare.py",
        command=("predict.py", "reviews.txt", "--batch-size", "1"),
        batch="--batch-size",
        batches=(1, 2, 4, 8, 16, 32, 64, 128),
        unit="review",
    ),
    "images": Spec(
        copied=(
            (f"{REACH}/k_diffusion", "."),
            (f"{REACH}/step_clock.py", "step_clock.py"),
        ),
        command=(
            *("sample.py", "--config", "config.json"),
            *("-n", "4000", "--steps", "12", "--batch-size", "1"),
        ),
        batch="--batch-size",
        batches=(1, 2, 4, 8, 16, 32, 64),
        unit="image",
    ),
}
MADE = {
    "infer.yaml": "inference:\n  sampler: {num_inference_steps: 60}\n"
    "  loader:\n    batch_size: 1\n    num_workers: 0\noutput_dir: results\n"
}


def laid_out(spec: Spec, folder: Path) -> Program:
    """The program in `folder`, as `optimize` would see it."""
    for source, name in spec.copied:
        ignored = shutil.ignore_patterns("results", "__pycache__")
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, folder / name, ignore=ignored, dirs_exist_ok=True)
        else:
            shutil.copy(ROOT / source, folder / name)
    for name, text in MADE.items():
        (folder / name).write_text(text)
    if spec.prepare:
        subprocess.run([sys.executable, spec.prepare], cwd=folder, check=True)
    (folder / ".git").mkdir()
    line = documents.parse(join([sys.executable, *spec.command]), "argv", COMMAND_LINE)
    config = documents.read(folder / spec.config) if spec.config else None
    return Program(config=config, command_line=line, cwd=folder, unit=spec.unit)


def at(spec: Spec, program: Program, values: Values) -> Candidate:
    """The change to a cell."""
    document = program.config or program.command_line
    paths = {"batch_size": spec.batch, "num_workers": spec.workers}
    return Candidate().with_changes(
        *(
            Change(
                document=document.name,
                path=str(paths[kind]),
                kind=kind,
                knob_class="free",
                old=document.scalars[str(paths[kind])].value,
                new=value,
            )
            for kind, value in values.items()
        )
    )
