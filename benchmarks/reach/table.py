"""The programs, and what is true of each."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
"""One folder each; `step_clock.py` is copied beside what is in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program: how it is called, and the truth that its rate, batch and loader must show."""

    name: str
    """Its folder."""
    command: tuple[str, ...]
    """`python` stands for the interpreter, `{port}` for a free port."""
    config: str | None = None
    """Path in the folder of the document that is tuned; None: the command alone."""
    batch: float | None
    """Units of one batch; None: it varies from batch to batch."""
    workers: int | None = 0
    """None: there is no loader."""
    accumulation: float = 1.0
    """Batches of one update; told for trainings only."""
    trains: bool = True
    unit: str = "samples"
    """What the program's own clock counts, as `profile` names it."""
    ranks: int = 1
    prepare: tuple[str, ...] | None = None
    """Makes its data, once, before anything is measured."""
    needs: tuple[str, ...] = ()
    """Modules that have to be installed."""
    budget: str = "3m"
    """Of `optimize`."""

    def missing(self) -> str | None:
        """Why it cannot run here, or None."""
        absent = [name for name in self.needs if importlib.util.find_spec(name) is None]
        return f"not installed: {', '.join(absent)}" if absent else None


TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "{port}")

TABLE = (
    Program(
        name="nanogpt",
        command=("python", "train.py", "config/train_small.py"),
        config="config/train_small.py",
        batch=4,
        workers=None,
        accumulation=4,
        prepare=("python", "prepare.py"),
    ),
    Program(
        name="word_lm",
        command=("python", "main.py", "--batch_size", "20"),
        batch=20,
        workers=None,
        prepare=("python", "data.py"),
    ),
    Program(
        name="own_optimizer",
        command=("python", "main.py", "--config", "config.json"),
        config="config.json",
        batch=16,
    ),
    Program(
        name="list_inference",
        command=("python", "predict.py", "reviews.txt"),
        batch=4,
        workers=None,
        trains=False,
        prepare=("python", "prepare.py"),
    ),
    Program(
        name="queue_server",
        command=("python", "server.py", "serve.yaml"),
        config="serve.yaml",
        batch=4,
        workers=None,
        trains=False,
    ),
    Program(
        name="hf_trainer",
        command=("python", "run_clm.py", "args.json"),
        config="args.json",
        batch=4,
        accumulation=2,
        needs=("transformers", "accelerate"),
        budget="5m",
    ),
    Program(
        name="pytorch_template",
        command=("python", "train.py", "-c", "config.json"),
        config="config.json",
        batch=32,
    ),
    Program(
        name="k_diffusion",
        command=("python", "sample.py", "--config", "config.json", "-n", "4000"),
        batch=2,
        workers=None,
        trains=False,
    ),
)
