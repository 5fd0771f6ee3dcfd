"""Does a call find the gain that an expert finds, in programs of the frameworks that people use?

    python -m benchmarks.expert [NAME ...] [--budget 4m] [--rounds 2] [--only-truth]

Fifteen programs of `programs/`, each with settings as they are met and the expert's, written down
before any call. A call tunes a copy; what it suggests with a patch is applied on top. Then the
original, the expert's and the tuned program run to their end in turns, without gpu-advisor. Their
own clocks tell the true rates: the table has the tuned rate over the expert's. What a call claims
is held against the later half of these runs, since its rates hold no start of workers.

They need the extra `frameworks`. Most of them sleep for the disk and the device, so that two calls
may run at once, each with a GPU_ADVISOR_RUNTIME_DIR of its own.
"""

import argparse
import json
import math
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor import config as documents
from advisor.config.leaves import Option
from advisor.errors import OPTIMIZE_EXIT_CODES
from advisor.model import JsonScalar

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).with_name("programs")
OPTIMIZE = (sys.executable, "-m", "advisor", "optimize")
CLOCK = re.compile(r"^clock (\d+) items ([0-9.]+) s, (\d+) items ([0-9.]+) s$", re.MULTILINE)
"""Of a whole run, and of its later half."""
NEAR = 0.9
"""Share of the expert's rate that counts as found."""
LONGEST_S = 180.0
"""A run under the stopwatch takes 5 to 20 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A program with its settings as they are met, and the expert's."""

    name: str
    script: str
    framework: str
    words: str
    """Words behind the script, without its settings."""
    items: int
    """Items of a run under the stopwatch."""
    config: str = ""
    """Path of the config that is tuned; empty: the settings are flags."""
    text: str = ""
    expert: Mapping[str, JsonScalar]
    """By path of the config, or by flag."""
    others: Mapping[str, str] = field(default_factory=dict)
    """Further files, by path."""
    env: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    """Of the call."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, f"{self.script}.py", *shlex.split(self.words)]


TRAINER = """\
output_dir: out
per_device_train_batch_size: {batch}
gradient_accumulation_steps: {accumulation}  # 32 samples an update
learning_rate: 0.001
lr_scheduler_type: constant
num_train_epochs: 1
use_cpu: true
disable_tqdm: true
save_strategy: "no"
report_to: none
"""
LIGHTNING = """\
seed_everything: 1
trainer:
  max_epochs: 1
  accelerator: cpu
  logger: false
  enable_checkpointing: false
  enable_progress_bar: false
  accumulate_grad_batches: {accumulation}
model:
  lr: 0.001
data:
  batch_size: {batch}
{data}"""

CASES = (
    Case(
        name="trainer-text",
        script="trainer_text",
        framework="transformers Trainer",
        words="train.yaml",
        items=1500,
        config="train.yaml",
        text=TRAINER.format(batch=4, accumulation=8) + "gradient_checkpointing: true\n",
        expert={
            "gradient_checkpointing": False,
            "train_sampling_strategy": "group_by_length",
            "per_device_train_batch_size": 16,
            "gradient_accumulation_steps": 2,
        },
    ),
    Case(
        name="trainer-loader",
        script="trainer_loader",
        framework="transformers Trainer",
        words="train.json",
        items=4000,
        config="train.json",
        text='{\n  "output_dir": "out",\n  "per_device_train_batch_size": 8,\n'
        '  "num_train_epochs": 1,\n  "use_cpu": true,\n  "disable_tqdm": true,\n'
        '  "save_strategy": "no",\n  "report_to": "none"\n}\n',
        expert={"dataloader_num_workers": 4},
    ),
    Case(
        name="trainer-update",
        script="trainer_loader",
        framework="transformers Trainer",
        words="train.yaml",
        items=8000,
        config="train.yaml",
        text=TRAINER.format(batch=2, accumulation=16),
        expert={"per_device_train_batch_size": 32, "gradient_accumulation_steps": 1},
        env={"LOAD_S": "0.0001"},
    ),
    Case(
        name="generate",
        script="generate",
        framework="transformers generate()",
        words="generate.yaml",
        items=3000,
        config="generate.yaml",
        text="batch_size: 1\nmax_new_tokens: 16\n",
        expert={"batch_size": 64},
    ),
    Case(
        name="accelerate",
        script="accelerate_loop",
        framework="accelerate",
        words="train.yaml",
        items=5000,
        config="train.yaml",
        text="learning_rate: 0.001\nbatch_size: 8\nnum_workers: 0\n",
        expert={"num_workers": 4},
    ),
    Case(
        name="lightning-loader",
        script="lightning_cli",
        framework="LightningCLI",
        words="fit --config train.yaml",
        items=5000,
        config="train.yaml",
        text=LIGHTNING.format(batch=8, accumulation=1, data="  load_s: 0.003\n"),
        expert={"data.num_workers": 4},
    ),
    Case(
        name="lightning-update",
        script="lightning_cli",
        framework="LightningCLI",
        words="fit --config train.yaml",
        items=8000,
        config="train.yaml",
        text=LIGHTNING.format(
            batch=2, accumulation=16, data="  num_workers: 1\n  load_s: 0.0001\n"
        ),
        expert={"data.batch_size": 32, "trainer.accumulate_grad_batches": 1},
    ),
    Case(
        name="hydra",
        script="hydra_group",
        framework="Hydra",
        words="hydra.run.dir=out",
        items=5000,
        config="conf/data/small.yaml",
        text="batch_size: 8\nnum_workers: 0\n",
        others={"conf/config.yaml": "defaults:\n  - data: small\n\nlr: 0.001\n"},
        expert={"num_workers": 4},
    ),
    Case(
        name="omegaconf",
        script="omegaconf_fields",
        framework="OmegaConf dataclass",
        words="run.yaml",
        items=5000,
        config="run.yaml",
        text="lr: 0.001\ndata:\n  batch_size: 8\n",
        expert={"data.num_workers": 4},
    ),
    Case(
        name="jsonargparse",
        script="jsonargparse_config",
        framework="jsonargparse",
        words="--config run.yaml",
        items=5000,
        config="run.yaml",
        text="model: small\nbatch_size: 1\n",
        expert={"batch_size": 64, "num_workers": 2},
    ),
    Case(
        name="tyro",
        script="tyro_cli",
        framework="tyro",
        words="",
        items=5000,
        expert={"--num-workers": 4},
    ),
    Case(
        name="fire",
        script="fire_cli",
        framework="Fire",
        words="",
        items=5000,
        expert={"--batch_size": 64, "--num_workers": 2},
    ),
    Case(
        name="absl",
        script="absl_flags",
        framework="absl",
        words="",
        items=8000,
        expert={"--batch_size": 32, "--grad_accum_steps": 1},
    ),
    Case(
        name="typer",
        script="typer_cli",
        framework="typer",
        words="",
        items=5000,
        expert={"--num-workers": 4},
    ),
    Case(
        name="accelerate-settled",
        script="accelerate_loop",
        framework="accelerate",
        words="train.yaml",
        items=4000,
        config="train.yaml",
        text="learning_rate: 0.001\nbatch_size: 8\nnum_workers: 6\n",
        expert={},
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Claim of one call, beside the stopwatch: true gains over the original."""

    case: Case
    verdict: str
    seconds: float
    claimed: tuple[float, float, float | None] | None
    """Ratio and bounds of what was written; None: nothing was."""
    told: float
    """Gain of what was written, times that of the suggestions on top that have a patch."""
    written: float
    steady: float
    """Of what was written, over the later half of the runs."""
    whole: float
    """Of what was written, with the patches of its suggestions."""
    expert: float
    changes: tuple[str, ...]

    @property
    def reached(self) -> float:
        """Share of the expert's rate."""
        return self.whole / self.expert


def laid_out(case: Case, folder: Path) -> Path:
    """A folder with the program and its settings as they are met."""
    folder.mkdir()
    scripts = (f"{name}.py" for name in (case.script, "body"))
    for script in scripts:
        if script not in case.others:
            shutil.copy(PROGRAMS / script, folder)
    for path, text in {**case.others, **({case.config: case.text} if case.config else {})}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def environment(case: Case, **more: str) -> dict[str, str]:
    return {**os.environ, **case.env, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", **more}


def expert_command(case: Case, folder: Path) -> list[str]:
    """Command with the expert's flags, or with the config rewritten in `folder`."""
    if not case.config:
        return [*case.command, *(f"{flag}={value}" for flag, value in case.expert.items())]
    read = documents.read(folder / case.config)
    missing = tuple(
        Option(flag=path, default=None, form="apart", behind=0)
        for path in case.expert
        if path not in read.leaves
    )
    known = documents.with_fields(read, missing) if missing else read
    (folder / case.config).write_bytes(known.with_values(case.expert))
    return case.command


def rate(case: Case, command: list[str], folder: Path) -> tuple[float, float]:
    """Items a second of one whole run and of its later half, by the program's own clock."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(case, ITEMS=str(case.items)),
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
    )
    found = CLOCK.search(done.stdout)
    if found is None:
        msg = f"{case.name} printed no clock: {done.stderr[-600:]}"
        raise SystemExit(msg)
    return int(found[1]) / float(found[2]), int(found[3]) / float(found[4])


def tuned(case: Case, folder: Path, budget: str) -> tuple[dict[str, Any], float]:
    """Report of a call in `folder`, whose config it rewrites, and its seconds."""
    words = [case.config] if case.config else []
    began = time.monotonic()
    done = subprocess.run(
        [*OPTIMIZE, *words, *case.flags, "--json", "--budget", budget, "--", *case.command],
        cwd=folder,
        env=environment(case),
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began
    if done.returncode not in OPTIMIZE_EXIT_CODES.values():
        return {"verdict": f"exit {done.returncode}: {done.stderr.strip()[-300:]}"}, seconds
    return json.loads((folder / "report.json").read_text()), seconds


def patched(folder: Path, report: dict[str, Any]) -> list[dict[str, Any]]:
    """Apply the suggestions that have a patch, largest gain first; return those that took."""
    applied = []
    for each in report.get("suggestions", ()):
        if not each["patch"]:
            continue
        done = subprocess.run(
            ["patch", "-p1", "--forward", "--batch"],
            cwd=folder,
            input=each["patch"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            applied.append(each)
    return applied


def run(case: Case, budget: str, rounds: int, *, only_truth: bool) -> Outcome:
    """Tune one program, then hold the result against the expert's, by the stopwatch."""
    with tempfile.TemporaryDirectory(prefix="expert-") as name:
        here = Path(name)
        arms = {"original": (case.command, laid_out(case, here / "original"))}
        folder = laid_out(case, here / "expert")
        arms["expert"] = (expert_command(case, folder), folder)
        report: dict[str, Any] = {"verdict": "-"}
        seconds, suggested = 0.0, []
        if not only_truth:
            folder = laid_out(case, here / "tuned")
            report, seconds = tuned(case, folder, budget)
            command = shlex.split(report.get("tuned_command") or "") or case.command
            command = case.command if case.config else command
            if report.get("changes"):
                shutil.copytree(folder, here / "written")
                arms["written"] = (command, here / "written")
            if suggested := patched(folder, report):
                arms["whole"] = (command, folder)
        rates: dict[str, list[tuple[float, float]]] = {arm: [] for arm in arms}
        for number in range(rounds):
            for arm in list(arms)[:: -1 if number % 2 else 1]:
                rates[arm].append(rate(case, *arms[arm]))
    gains, steady = (
        gains_of({arm: [each[part] for each in of_arm] for arm, of_arm in rates.items()})
        for part in (0, 1)
    )
    written = gains.get("written", 1.0)
    gain = report.get("gain") or {}
    changes = [f"{each['path']}={each['new']}" for each in report.get("changes", ())]
    return Outcome(
        case=case,
        verdict=report["verdict"],
        seconds=seconds,
        claimed=(gain["ratio"], gain["low"], gain["high"]) if gain and "written" in gains else None,
        told=math.prod(each["ratio"] for each in (gain, *(s["gain"] for s in suggested)) if each),
        written=written,
        steady=steady.get("written", 1.0),
        whole=gains.get("whole", written),
        expert=gains["expert"],
        changes=(*changes, *(f"suggested: {each['title']}" for each in suggested)),
    )


def gains_of(rates: Mapping[str, list[float]]) -> dict[str, float]:
    """Median rate of each arm over the original's."""
    medians = {arm: statistics.median(each) for arm, each in rates.items()}
    return {arm: each / medians["original"] for arm, each in medians.items()}


def row(each: Outcome) -> str:
    """Row of the table."""
    claim, inside = "-", "-"
    if each.claimed is not None:
        ratio, low, high = each.claimed
        claim = f"{ratio:.2f} ({low:.2f} to {'-' if high is None else f'{high:.2f}'})"
        inside = "yes" if low <= each.steady <= (high or float("inf")) else "NO"
    return (
        f"| {each.case.name} | {each.case.framework} | {each.verdict} | {each.seconds:.0f} "
        f"| {claim} | {inside} | {each.steady:.2f} | {each.written:.2f} | {each.whole:.2f} "
        f"| {each.expert:.2f} "
        f"| {100 * each.reached:.0f} % | {', '.join(each.changes)} |"
    )


def main() -> None:
    """Print a row for each program, then how many reached the expert's rate."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    names = [case.name for case in CASES]
    parser.add_argument("names", nargs="*", choices=[*names, []], metavar="NAME")
    parser.add_argument("--budget", default="4m")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only-truth", action="store_true", help="the expert's gain, no call")
    args = parser.parse_args()
    print(
        "| program | framework | verdict | s | claimed | inside | steady | written "
        "| with suggestions | expert | reached | changes |\n"
        "|:--|:--|:--|--:|:--|:--|--:|--:|--:|--:|--:|:--|"
    )
    found = []
    for case in CASES:
        if not args.names or case.name in args.names:
            found.append(run(case, args.budget, args.rounds, only_truth=args.only_truth))
            print(row(found[-1]), flush=True)
    near = sum(each.reached >= NEAR for each in found)
    print(f"\n{near} of {len(found)} reached {NEAR:.0%} of the expert's rate")


if __name__ == "__main__":
    main()
