"""The programs, and what is true of each."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "published"
"""One folder each; `step_clock.py` is copied beside what is in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program: how it is called, and the truth that its rate, batch and loader must show."""

    name: str
    command: tuple[str, ...]
    """`python` stands for the interpreter, `{port}` for a free port."""
    config: str
    """Path in the folder of the document that is tuned."""
    batch: float
    """Units of one batch."""
    unit: str = "samples"
    """What is counted: items, or what a forward has where none was seen to be finished."""
    workers: int | None = 0
    """None: there is no loader."""
    accumulation: float = 1.0
    """Batches of one update; told for trainings only."""
    trains: bool = True
    ranks: int = 1
    prepare: tuple[str, ...] | None = None
    """Makes its data, once, before anything is measured."""
    needs: tuple[str, ...] = ()
    """Modules that have to be installed."""
    minutes: int = 3
    """Budget of `optimize`."""

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
        name="queue_server",
        command=("python", "server.py", "serve.yaml"),
        config="serve.yaml",
        unit="rows of a forward",
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
        minutes=5,
    ),
    Program(
        name="accelerate_cv",
        command=("python", "cv_example.py", "--config", "config.yaml"),
        config="config.yaml",
        batch=16,
        accumulation=2,
        needs=("accelerate",),
    ),
    Program(
        name="lightning_cli",
        command=("python", "main.py", "fit", "--config", "config.yaml"),
        config="config.yaml",
        batch=24,
        accumulation=2,
        needs=("lightning", "jsonargparse"),
        minutes=5,
    ),
    Program(
        name="torchrun_ddp",
        command=("python", *TORCHRUN, "multigpu_torchrun.py", "multigpu.yaml"),
        config="multigpu.yaml",
        batch=16,
        ranks=2,
        minutes=4,
    ),
)
