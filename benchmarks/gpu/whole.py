"""Steps: the reference workloads tuned end to end on this card, and the gate on it."""

import functools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.errors import OPTIMIZE_EXIT_CODES
from advisor.gate.sequential_test import FEWEST_TO_FAIL
from advisor.machine import profiles
from benchmarks.gpu.bench import ROOT, Bench
from benchmarks.gpu.record import Line
from tests.support.contradictions import contradictions

KEPT = ("benchmarks", "config", "gpu-advisor.toml")
LARGE_GIB = 30.0
"""From this memory on a workload is grown four times, below it twice."""
GATE_S, SHORT_GATE_S = 150, 90
"""With pairs of 12 s a regression may fall, which takes twelve; slower starts leave it open."""
AROUND_S = 45
"""What a workload takes besides its budget: its own data, made once, and two starts."""
TOO_SMALL = 24
"""Exit code of a budget that buys no proof."""
NO_TIME = "no time for it here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A reference workload and its share of the time."""

    config: str | None
    program: tuple[str, ...]
    once: tuple[str, ...]
    """Further words of a shortest run, which makes the data that the program keeps."""
    budget_s: int = 60
    short_s: int | None = None
    """Budget of a short run; None: left out there."""
    short_config: tuple[tuple[str, str], ...] = ()
    """Texts of the config that a short run replaces."""
    needs_numbers: bool = False
    """It reads indices that its card has computed, and a made card computes none."""


DEM = "benchmarks.workloads.dem_completion.run"
EMBER = "benchmarks.workloads.emberformer.run"
RELIGHT = "benchmarks.workloads.relighting.run"
WORKLOADS = {
    "dem": Workload(
        config="config/dem_completion.json",
        program=("-m", DEM, "-p", "test", "-c", "{config}"),
        once=("--tiles", "1", "--n_timestep", "2"),
        budget_s=110,
        short_s=40,
        short_config=(
            ('"n_timestep": 1000', '"n_timestep": 20'),
            ('"num_workers": 12', '"num_workers": 2'),
        ),
    ),
    "emberformer": Workload(
        config="config/emberformer.yaml",
        program=("-m", EMBER, "-p", "train", "-c", "{config}"),
        once=("--max_steps", "1"),
        budget_s=90,
    ),
    "relighting": Workload(
        config="config/relighting.yaml",
        program=("-m", RELIGHT, "-c", "{config}", "--batch-size", "1", "--num-gpus", "1"),
        once=("--limit", "2"),
    ),
    "headpose": Workload(
        config=None,
        program=("benchmarks/workloads/headpose/train.py", "--dataset", "biwi"),
        once=("--epochs", "1", "--max-steps", "1"),
        budget_s=100,  # baseline and a what-if in fresh processes: 60 s prove nothing
    ),
    "speech": Workload(
        config="config/speech.py",
        program=("benchmarks/workloads/speech/train.py", "--config", "{config}"),
        once=("--epochs", "1", "--max-steps", "1"),
        needs_numbers=True,
    ),
}

GATED = """
import time, torch
from benchmarks.gpu.program import Kernels
device = torch.device("cuda")
kernels = Kernels(device)
for _ in range(20):
    kernels.queue(2.0)
torch.cuda.synchronize()
start = time.perf_counter()
for _ in range(150):
    kernels.queue(2.0 * {factor})
torch.cuda.synchronize()
print("throughput:", 150 / (time.perf_counter() - start))
"""


def steps() -> dict[str, Callable[[Bench], Iterator[Line]]]:
    """One step for each workload."""
    return {name: functools.partial(tuned, name=name) for name in WORKLOADS}


def tuned(bench: Bench, *, name: str) -> Iterator[Line]:
    """Tune a workload in a copy of the repository, without history."""
    work = WORKLOADS[name]
    budget_s = work.short_s if bench.short else work.budget_s
    if bench.made and work.needs_numbers:
        yield bench.line("optimize", "", "it needs numbers, and a made card computes none", None)
        return
    if budget_s is None or bench.left_s < budget_s + AROUND_S:
        yield bench.line("optimize", "", f"{NO_TIME}: --only {name} runs it", None)
        return
    project = bench.folder / name
    copy_project(project)
    if work.config and bench.short:
        text = (project / work.config).read_text(encoding="utf-8")
        for old, new in work.short_config:
            text = text.replace(old, new)
        (project / work.config).write_text(text, encoding="utf-8")
    scale = 1 if bench.simulated else 4 if bench.total_gib >= LARGE_GIB else 2
    words = (word.format(config=work.config) for word in work.program)
    program = (*words, "--scale", str(scale))
    bare = bench.python(*program, *work.once, cwd=project, limit_s=90)
    yield bench.line(
        "the program by itself", "exit code 0", f"{bare.returncode} {_last_lines(bare.stderr)}",
        bare.returncode == 0, "the workload, not gpu-advisor",
    )  # fmt: skip
    how = ("--window", "1s", "--safe") if bench.short else ("--window", "2s")
    done = bench.python(
        "-m", "advisor", "optimize", *filter(None, [work.config]), "--json", "--fresh",
        *how, "--budget", f"{budget_s}s", "--", sys.executable, *program,
        cwd=project, limit_s=2.5 * budget_s + 60,
    )  # fmt: skip
    ended = done.returncode in OPTIMIZE_EXIT_CODES.values()
    yield bench.line(
        f"optimize ends (scale {scale}, {budget_s} s)", "an answer",
        f"{done.returncode} {_last_lines(done.stderr)}",
        None if done.returncode == TOO_SMALL else ended,
        "run the command by hand; report.md in its folder",
    )  # fmt: skip
    if (path := project / "report.json").exists():
        page = path.with_suffix(".md").read_text(encoding="utf-8")
        yield from _answer(bench, json.loads(path.read_text(encoding="utf-8")), page)


def _answer(bench: Bench, report: dict[str, Any], page: str) -> Iterator[Line]:
    """Verdict, throughput, card and bottleneck of a report, and whether its figures agree."""
    gain, before, after = (report.get(name) or {} for name in ("gain", "before", "after"))
    changes = ", ".join(
        f"{each['path'].rsplit('.', 1)[-1]} {each['old']} to {each['new']}"
        for each in report.get("changes", [])
    )
    yield bench.line(
        "the verdict", "", f"{report.get('verdict')}; {gain.get('ratio')} "
        f"({gain.get('low')} to {gain.get('high')}); {changes or '-'}", None,
    )  # fmt: skip
    yield bench.line(
        "before and after", "", f"{before.get('units_per_s')} to {after.get('units_per_s')} "
        f"{report.get('unit', 'unit')}s/s, {before.get('peak_mem_gib')} to "
        f"{after.get('peak_mem_gib')} GiB of {bench.total_gib:.0f}", None,
    )  # fmt: skip
    card, target = str(bench.card.get("name")), str(report.get("target"))
    profile = profiles.match(card, bench.total_gib)
    names = {card, *([profile.title] if profile else [])}  # a data sheet has a name of its own
    yield bench.line(
        "the card in the report", " or ".join(sorted(names)), target,
        None if bench.simulated else any(name in target for name in names),
        "advisor/machine/target.py",
    )  # fmt: skip
    bottleneck, shares = report.get("bottleneck_before") or {}, before.get("shares") or {}
    low = bottleneck.get("name") == "compute" and (shares.get("compute") or 1.0) < 0.5
    yield bench.line(
        "the bottleneck", "never compute at low utilisation",
        f"{bottleneck.get('name')}; " + ", ".join(f"{k} {v:.0%}" for k, v in shares.items()),
        not low if bottleneck else None, "advisor/report/bottleneck.py",
    )  # fmt: skip
    disagree = contradictions(report, page)
    yield bench.line(
        "figures of the page", "none contradicts another", "; ".join(disagree) or "they agree",
        not disagree, "tests/support/contradictions.py has the rule; advisor/report the figure",
    )  # fmt: skip


def _last_lines(text: str) -> str:
    return " ".join(text.strip().splitlines()[-3:])


def copy_project(project: Path, python: str = sys.executable) -> None:
    """Copy what the commands read, below a root that git would name; for programs of `python`."""
    (project / ".git").mkdir(parents=True)
    for kept in KEPT:
        source = ROOT / kept
        if source.is_dir():
            ignored = shutil.ignore_patterns("results", "__pycache__")
            shutil.copytree(source, project / kept, ignore=ignored)
        else:
            text = source.read_text(encoding="utf-8")  # quality commands run under it, too
            (project / kept).write_text(text.replace("python ", f"{python} "), "utf-8")


def gate(bench: Bench) -> Iterator[Line]:
    """Gate the same code, then code a tenth slower."""
    for added, expected in ((0.0, {"pass"}), (0.1, {"regression", "fail"})):
        what = f"the gate, head {added:.0%} slower"
        budget_s = SHORT_GATE_S if bench.short else min(GATE_S, int(bench.left_s))
        if added and bench.short:
            yield bench.line(what, "", NO_TIME, None)
            continue
        project = bench.folder / f"gate-{round(100 * added)}"
        project.mkdir()
        git = ("git", "-C", str(project), "-c", "user.name=bench", "-c", "user.email=b@localhost")
        subprocess.run([*git, "init", "-q"], check=True)
        for factor in (1.0, 1.0 + added):
            (project / "bench.py").write_text(GATED.format(factor=factor), encoding="utf-8")
            subprocess.run([*git, "add", "-A"], check=True)
            subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
        report = project.with_suffix(".md")
        done = bench.python(
            "-m", "advisor", "gate", "--command", f"{sys.executable} bench.py",
            "--base-ref", "HEAD^", "--max-minutes", f"{budget_s / 60:.2f}", "--report", str(report),
            cwd=project, limit_s=3 * GATE_S,
        )  # fmt: skip
        path = report.with_suffix(".json")
        if not path.exists():
            yield bench.line(what, str(expected), _last_lines(done.stderr), False, "advisor/gate")
            continue
        record = json.loads(path.read_text(encoding="utf-8"))
        work, verdict = (record.get("workloads") or [{}])[0], str(record.get("verdict"))
        few = verdict == "inconclusive" and (work.get("pairs") or 0) < FEWEST_TO_FAIL
        yield bench.line(
            what, " or ".join(sorted(expected)),
            f"{verdict}: {work.get('slowdown_pct')} % ({work.get('ci_low_pct')} to "
            f"{work.get('ci_high_pct')}), {work.get('pairs')} pairs; {record.get('reason')}",
            None if (bench.simulated and verdict == "inconclusive") or (few and added)
            or not work.get("pairs")  # a slow start may leave no time for a pair
            else verdict in expected,
            "inconclusive: more minutes, or locked clocks; invalid: what else is on the card",
        )  # fmt: skip
