"""Knobs whose names nobody could know: are they found by experiment, and only they?

    python -m benchmarks.discovery [--programs 40] [--seed 1]

Each program gets a nested config (JSON or YAML), a command line, or both, with names drawn at
random; batch, workers, accumulation or sampling steps stand in it, or in the code. Beside them
stand decoys of equal value: a hidden size, a number of epochs, heads that must divide the hidden
size, and values that nothing reads. Printed: recall and precision by kind, and the processes
beside the first.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from advisor import knobs
from advisor.commands import invocation
from advisor.executor.engines import EngineSettings
from advisor.executor.engines.joint import make_engine
from advisor.executor.requests import Program, TrialRequest, TrialResult, Variant
from advisor.machine.host import read_machine
from advisor.model import Failure, MeasurePlan
from advisor.objective import THROUGHPUT
from advisor.settings import QualityMeasure
from advisor.tuner import policy
from advisor.tuner.baseline import discover_knobs
from advisor.tuner.context import Source, TuningContext
from advisor.tuner.state import TunerState

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "tests" / "fixtures" / "programs"
KINDS = {
    "batch": "batch_size",
    "workers": "num_workers",
    "accumulate": "grad_accum",
    "steps": "timesteps",
}
"""Role to the kind that is to be found."""
SYLLABLES = (
    "bo", "cra", "du", "fen", "gly", "hob", "jux", "kri", "lom", "mup", "nar", "ost", "pli", "quo",
    "rab", "sku", "tev", "ulm", "vex", "wib", "yan", "zorp",
)  # fmt: skip
NO_BUDGET_S = 1e9
QUALITY = {"psnr": QualityMeasure(pattern="psnr: ([0-9.]+)", tolerance="5%")}
"""Declared, so that sampling steps are worth a process."""
IN_CODE = 0.12
"""Share of settings that no document holds, while decoys of the same value do."""


@dataclass(kw_only=True)
class Made:
    """A program that was made up."""

    command: list[str]
    config: str | None
    truth: dict[tuple[str, str], str]
    """Kind by document and path."""
    shape: str


@dataclass(kw_only=True)
class Score:
    """What was found of all programs."""

    wanted: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    processes: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def fresh_names(draw: random.Random) -> Iterator[str]:
    """Names drawn at random, each once."""
    given: set[str] = set()
    while True:
        many = draw.choice((1, 2, 2, 3))
        name = "".join(draw.choice(SYLLABLES) for _ in range(many))
        if draw.random() < 0.3:
            name += "_" + draw.choice(SYLLABLES)
        if name not in given:
            given.add(name)
            yield name


def settings_of(draw: random.Random) -> dict[str, int]:
    """Roles and values of one program, decoys of equal value among them."""
    batch = draw.choice((2, 4, 6, 8, 12, 16, 20, 24, 32, 48))
    workers = draw.choice((0, 1, 2, 3))
    settings = {"batch": batch, "workers": workers, "hidden": batch}
    kind = draw.choice(("train", "train", "accumulate", "shared", "infer", "sampler"))
    if kind in {"accumulate", "shared"}:
        settings["accumulate"] = draw.choice((2, 3, 4, 5))
        if kind == "shared":
            settings |= {"shared": 1, "batch": batch * settings["accumulate"]}
    if kind == "infer":
        settings["train"] = 0
    elif kind == "sampler":
        settings["steps"] = draw.choice((10, 25, 50))
    else:
        settings["epochs"] = max(1, workers or settings.get("accumulate", 2))
    if draw.random() < 0.4:
        settings["heads"] = draw.choice([n for n in (1, 2, batch) if batch % n == 0])
    return settings


def make(draw: random.Random, folder: Path) -> Made:
    """A program in `folder`, drawn anew."""
    names, settings = fresh_names(draw), settings_of(draw)
    form = draw.choice(("json", "yaml", "argv", "json+argv", "yaml+argv"))
    config: dict[str, Any] = {}
    flags: list[str] = []
    roles: dict[str, Any] = {"shared": settings.pop("shared", 0), "train": settings.pop("train", 1)}
    truth: dict[tuple[str, str], str] = {}
    file = f"config.{form.partition('+')[0]}" if form != "argv" else None
    entries = list(settings.items())
    entries += [(f"nothing {n}", draw.choice(list(settings.values()))) for n in range(3)]
    entries += [(f"other {n}", draw.randint(100, 999)) for n in range(4)]
    draw.shuffle(entries)
    for role, value in entries:
        if role in KINDS and draw.random() < IN_CODE:
            roles[role] = value
            continue
        on_flag = file is None or (form.endswith("argv") and draw.random() < 0.4)
        if on_flag:
            path = f"--{next(names)}"
            flags += [path, str(value)]
        else:
            path = put(config, names, draw, value)
        if not role.startswith(("nothing", "other")):
            roles[role] = path
        if role in KINDS and not (role == "accumulate" and value < 2):
            document = "command line" if on_flag else str(folder / str(file))
            truth[document, path] = KINDS[role]
    if file is not None:
        dump = json.dumps(config, indent=2) if form.startswith("json") else yaml.safe_dump(config)
        (folder / file).write_text(dump)
    (folder / "roles.json").write_text(json.dumps(roles))
    for name in ("ok_made_up.py", "ok_descent.py"):
        shutil.copy(PROGRAMS / name, folder)
    words = [sys.executable, str(folder / "ok_made_up.py"), str(folder / "roles.json")]
    words += [str(folder / file)] if file else []
    shape = " ".join(f"{role}={value}" for role, value in settings.items())
    return Made(
        command=[*words, *flags],
        config=str(folder / file) if file else None,
        truth=truth,
        shape=f"{form}: {shape}",
    )


def put(config: dict[str, Any], names: Iterator[str], draw: random.Random, value: int) -> str:
    """Add `value` somewhere in `config`; its path."""
    here, keys = config, []
    for _ in range(draw.choice((0, 1, 1, 2))):
        inner = [key for key, below in here.items() if isinstance(below, dict)]
        key = draw.choice(inner) if inner and draw.random() < 0.6 else next(names)
        here = here.setdefault(key, {})
        keys.append(key)
    key = next(names)
    here[key] = value
    return ".".join([*keys, key])


def discovered(made: Made) -> tuple[dict[tuple[str, str], str], int] | Failure:
    """Kinds by document and path, and the processes beside the first."""
    asked = invocation.resolve([Path(made.config)] if made.config else [], made.command)
    found = (*asked.configs, asked.command_line)
    machine = read_machine()
    facts = TuningContext(
        sources=tuple(Source(document=each, findings=knobs.find(each)) for each in found),
        workload=asked.workload.model_copy(update={"quality": QUALITY}),
        objective=THROUGHPUT,
        cpus=machine.cpus,
        memory_limit_gib=machine.ram_limit_gib,
        precisions=("fp32",),
        has_gpu=bool(machine.gpus),
        smallest_gain=0.03,
        budget_s=NO_BUDGET_S,
    )
    program = Program(
        configs=asked.configs, command_line=asked.command_line, cwd=asked.cwd, unit="sample"
    )
    plan = MeasurePlan(
        measure_s=policy.FOLLOWING_WINDOW_S, min_steps=policy.FOLLOWING_STEPS, whole_batches=1
    )
    request = TrialRequest(variant=Variant(), purpose="baseline", plan=plan)
    with make_engine(EngineSettings(gpu_uuid=None)) as engine:
        processes = 0

        def answer(request: TrialRequest) -> TrialResult:
            nonlocal processes
            processes += 1
            id_ = f"{time.monotonic_ns()}"
            result = engine.run(program.trial(id_, request, engine.scratch(id_)))
            return TrialResult(id=id_, request=request, result=result, remaining_s=NO_BUDGET_S)

        def drive(steps: Any) -> Any:
            try:
                turn = next(steps)
                while True:
                    turn = steps.send(answer(turn.request))
            except StopIteration as end:
                return end.value

        original = answer(request).result
        if isinstance(original, Failure):
            return original
        state = TunerState(context=facts, remaining_s=NO_BUDGET_S, originals=(original,))
        processes = 0
        followed = drive(discover_knobs(state)).followed
        found = {(f.move.suspect.document, f.move.suspect.path): f.trace.kind for f in followed}
        return found, processes


def judge(made: Made, score: Score) -> str:
    """Run the experiment on one program and count; a line about it."""
    begun = time.monotonic()
    found = discovered(made)
    score.wanted.update(made.truth.values())
    if isinstance(found, Failure):
        score.wrong.append(f"not run  {made.shape}: {found.evidence}")
        return f"failed: {found.evidence}"
    kinds, processes = found
    right = kinds.items() & made.truth.items()
    score.processes[processes] += 1
    score.found.update(kinds.values())
    score.right.update(kind for _, kind in right)
    for word, all_ in (("wrong", kinds), ("missed", made.truth)):
        for (_, path), kind in sorted(all_.items() - right):
            score.wrong.append(f"{word}  {kind} at {path}  {made.shape}")
    took_s = time.monotonic() - begun
    return f"{len(right)} of {len(made.truth)}, {processes} processes, {took_s:.1f} s  {made.shape}"


def table(score: Score) -> str:
    """One row a kind, and all together."""
    lines = [f"{'kind':<14}{'there':>7}{'found':>7}{'recall':>8}{'precision':>11}"]
    for kind in (*sorted(score.wanted), "all"):
        counts = [
            each.total() if kind == "all" else each[kind]
            for each in (score.wanted, score.found, score.right)
        ]
        wanted, found, right = counts
        recall, precision = right / wanted if wanted else 1.0, right / found if found else 1.0
        lines.append(f"{kind:<14}{wanted:>7}{found:>7}{recall:>8.3f}{precision:>11.3f}")
    lines.append(
        "processes beside the first: "
        + ", ".join(f"{many} in {programs}" for many, programs in sorted(score.processes.items()))
    )
    return "\n".join([*lines, *score.wrong])


def main() -> None:
    """Make programs up, run each, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    draw, score = random.Random(args.seed), Score()
    with tempfile.TemporaryDirectory(prefix="made-up-") as folder:
        os.environ.setdefault("GPU_ADVISOR_RUNTIME_DIR", folder)
        for number in range(args.programs):
            place = Path(folder, f"{number:02d}")
            place.mkdir()
            print(f"{number:02d}  {judge(make(draw, place), score)}", flush=True)
    print(table(score))


if __name__ == "__main__":
    main()
