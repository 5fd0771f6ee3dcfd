"""Steps: the reference workloads tuned end to end on this card, and the gate on it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from advisor.errors import OPTIMIZE_EXIT_CODES
from benchmarks.gpu.bench import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.gpu.bench import Bench
    from benchmarks.gpu.record import Line

KEPT = ("benchmarks", "config", "gpu-advisor.toml")
LARGE_GIB = 30.0
"""From this memory on a workload is grown four times, below it twice."""
DEM_S, EMBER_S, GATE_S, MORE_S = 110, 90, 45, 60
SHORT_S, SHORT_DEM_S, SHORT_GATE_S = 20, 40, 90
"""Budgets in a short run: each is over sooner where the machine is quiet."""
AROUND_S = 45
"""What a workload takes besides its budget: its own data, made once, and two starts."""
TOO_SMALL = 24
"""Exit code of a budget that buys no proof."""
NO_TIME = "no time for it here"

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


def scale_of(bench: Bench) -> int:
    """How many times larger than on a CPU the workloads are."""
    if bench.simulated:
        return 1
    return 4 if bench.total_gib >= LARGE_GIB else 2


def budget_of(bench: Bench, usual_s: int, short_s: int = SHORT_S) -> int:
    """Seconds for one call."""
    if bench.short:
        return short_s
    return max(SHORT_S, min(usual_s, int(bench.left_s) - 10))


def dem(bench: Bench) -> Iterator[Line]:
    """The diffusion model that fills voids, tuned from the config as it is."""
    yield from _tuned(
        bench,
        name="dem",
        config="config/dem_completion.json",
        program=("-m", "benchmarks.workloads.dem_completion.run", "-p", "test", "-c", "{config}"),
        once=("--tiles", "1", "--n_timestep", "2"),
        budget_s=budget_of(bench, DEM_S, SHORT_DEM_S),
        changed=(
            ('"n_timestep": 1000', '"n_timestep": 20'),
            ('"num_workers": 12', '"num_workers": 2'),
        )
        * bench.short,
    )


def emberformer(bench: Bench) -> Iterator[Line]:
    """The transformer that predicts fires, trained."""
    if bench.short:
        yield bench.line("optimize", "", NO_TIME, None)
        return
    yield from _tuned(
        bench,
        name="emberformer",
        config="config/emberformer.yaml",
        program=("-m", "benchmarks.workloads.emberformer.run", "-p", "train", "-c", "{config}"),
        once=("--max_steps", "1"),
        budget_s=budget_of(bench, EMBER_S),
    )


def relighting(bench: Bench) -> Iterator[Line]:
    """Four networks in turn; fewer portraits, as they are drawn on the CPU."""
    yield from _where_there_is_time(
        bench,
        name="relighting",
        config="config/relighting.yaml",
        program=("-m", "benchmarks.workloads.relighting.run", "-c", "{config}",
                 "--batch-size", "1", "--num-gpus", "1"),
        once=("--limit", "2"),
        changed=(("portraits: 1600", "portraits: 400"),),
    )  # fmt: skip


def headpose(bench: Bench) -> Iterator[Line]:
    """A training on JPEG files whose loader stands in the code, and no config."""
    yield from _where_there_is_time(
        bench,
        name="headpose",
        config=None,
        program=("benchmarks/workloads/headpose/train.py", "--dataset", "biwi"),
        once=("--epochs", "1", "--max-steps", "1"),
    )


def speech(bench: Bench) -> Iterator[Line]:
    """A training on files of various lengths, with a Python class for a config."""
    yield from _where_there_is_time(
        bench,
        name="speech",
        config="config/speech.py",
        program=("benchmarks/workloads/speech/train.py", "--config", "{config}"),
        once=("--epochs", "1", "--max-steps", "1"),
    )


def _where_there_is_time(bench: Bench, *, name: str, **workload: Any) -> Iterator[Line]:
    """A workload that comes last: with too little time left that is told, and counts for nothing.

    `--minutes 13` holds all three, `--only` one of them.
    """
    needed_s = MORE_S + AROUND_S
    if bench.short or bench.left_s < needed_s:
        left = f"{max(0.0, bench.left_s):.0f} s were left of {needed_s}"
        found = NO_TIME if bench.short else f"{left}: --only {name} runs it"
        yield bench.line("optimize", "", found, None)
        return
    yield from _tuned(bench, name=name, budget_s=budget_of(bench, MORE_S), **workload)


def _tuned(
    bench: Bench,
    *,
    name: str,
    config: str | None,
    program: tuple[str, ...],
    once: tuple[str, ...],
    budget_s: int,
    changed: tuple[tuple[str, str], ...] = (),
) -> Iterator[Line]:
    """`optimize` in a copy of the repository's config, without history: before and after.

    The program runs once before, for the data that it generates and keeps. The words `changed` of
    the config become those beside them.
    """
    project = bench.folder / name
    _copy(project)
    if config is not None:
        text = (project / config).read_text(encoding="utf-8")
        for before, now in changed:
            text = text.replace(before, now)
        (project / config).write_text(text, encoding="utf-8")
    scale = scale_of(bench)
    program = (*(word.format(config=config) for word in program), "--scale", str(scale))
    bare = bench.python(*program, *once, cwd=project, limit_s=90)
    said = " ".join(bare.stderr.strip().splitlines()[-2:]) if bare.returncode else ""
    yield bench.line(
        "the program by itself", "exit code 0", f"{bare.returncode} {said}".strip(),
        bare.returncode == 0, "the workload, not gpu-advisor",
    )  # fmt: skip
    how = ("--window", "1s", "--safe") if bench.short else ("--window", "2s")
    done = bench.python(
        "-m", "advisor", "optimize", *([config] if config else []), "--json", "--fresh",
        *how, "--budget", f"{budget_s}s", "--", sys.executable, *program,
        cwd=project, limit_s=2.5 * budget_s + 60,
    )  # fmt: skip
    path = project / "report.json"
    said = " ".join(done.stderr.strip().splitlines()[-3:])
    ended = done.returncode in OPTIMIZE_EXIT_CODES.values()
    fine = None if bench.simulated and done.returncode == TOO_SMALL else ended
    yield bench.line(
        f"optimize ends (scale {scale}, {budget_s} s)", "exit 0 or 5", f"{done.returncode}: {said}"
        if done.returncode else "0", fine, "run the command by hand; report.md in its folder",
    )  # fmt: skip
    if not path.exists():
        return
    report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    gain, free = report.get("gain") or {}, report.get("gain_free") or {}
    before, after = report.get("before") or {}, report.get("after") or {}
    changes = ", ".join(f"{c['path'].rsplit('.', 1)[-1]} {c['from']} to {c['to']}"
                        for c in report.get("changes", []))  # fmt: skip
    yield bench.line(
        "the verdict", "" if bench.simulated else "improved, or proven that nothing better was "
        "found", f"{report.get('verdict')}; {_ratio(gain)}, free {_ratio(free)}; {changes or '-'}",
        None,
    )  # fmt: skip
    yield bench.line(
        "before and after", "", f"{before.get('units_per_s')} to {after.get('units_per_s')} "
        f"{report.get('unit', 'unit')}s/s, {before.get('peak_mem_gib')} to "
        f"{after.get('peak_mem_gib')} GiB of {bench.total_gib:.0f}", None,
    )  # fmt: skip
    target = report.get("target") or {}
    card = str(bench.card.get("name"))
    named = json.dumps(target)
    yield bench.line(
        "the card in the report", card, str(target.get("title") or target.get("name")),
        None if bench.simulated else card in named or "nvidia" in named.lower(),
        "advisor/machine/target.py computed_on",
    )  # fmt: skip
    bottleneck = report.get("bottleneck_before") or {}
    shares = (before.get("shares") or {}) if isinstance(before, dict) else {}
    compute = shares.get("compute")
    low = bottleneck.get("name") == "compute" and compute is not None and compute < 0.5
    yield bench.line(
        "the bottleneck", "never compute at low utilisation",
        f"{bottleneck.get('name')}; " + ", ".join(f"{k} {v:.0%}" for k, v in shares.items()),
        None if not bottleneck else not low, "advisor/report/bottleneck.py idle_cause",
    )  # fmt: skip


def _ratio(gain: dict[str, Any]) -> str:
    if not gain.get("ratio"):
        return "no gain proven"
    return f"{gain['ratio']:.2f}x ({gain.get('low') or 0:.2f} to {gain.get('high') or 0:.2f})"


def _copy(project: Path) -> None:
    """What the commands read, and a folder of git's so that the project's root is found."""
    (project / ".git").mkdir(parents=True)
    for kept in KEPT:
        source = ROOT / kept
        if source.is_dir():
            ignored = shutil.ignore_patterns("results", "__pycache__")
            shutil.copytree(source, project / kept, ignore=ignored)
        else:
            shutil.copy(source, project / kept)


def gate(bench: Bench) -> Iterator[Line]:
    """The same code passes; a tenth slower fails, or is said not to be provable here."""
    for added, expected in ((0.0, {"pass"}), (0.1, {"regression", "fail"})):
        budget_s = budget_of(bench, GATE_S, SHORT_GATE_S)
        if added and bench.short:
            yield bench.line(f"the gate, head {added:.0%} slower", "", NO_TIME, None)
            continue
        project = bench.folder / f"gate-{round(100 * added)}"
        project.mkdir()
        git = ("git", "-C", str(project), "-c", "user.name=bench", "-c", "user.email=b@localhost")
        subprocess.run([*git, "init", "-q"], check=True)
        for factor in (1.0, 1.0 + added):
            (project / "bench.py").write_text(GATED.format(factor=factor), encoding="utf-8")
            subprocess.run([*git, "add", "-A"], check=True)
            subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
        report = bench.folder / f"gate-{round(100 * added)}.md"
        done = bench.python(
            "-m", "advisor", "gate", "--command", f"{sys.executable} bench.py",
            "--base-ref", "HEAD^", "--max-minutes", f"{budget_s / 60:.2f}", "--report", str(report),
            cwd=project, limit_s=3 * GATE_S,
        )  # fmt: skip
        path = report.with_suffix(".json")
        if not path.exists():
            said = " ".join(done.stderr.strip().splitlines()[-3:])
            yield bench.line(f"{added:.0%} slower", str(expected), said, False, "advisor/gate")
            continue
        record = json.loads(path.read_text(encoding="utf-8"))
        work = (record.get("workloads") or [{}])[0]
        verdict = str(record.get("verdict"))
        yield bench.line(
            f"the gate, head {added:.0%} slower", " or ".join(sorted(expected)),
            f"{verdict}: {work.get('slowdown_pct')} % ({work.get('ci_low_pct')} to "
            f"{work.get('ci_high_pct')}), {work.get('pairs')} pairs; {record.get('reason')}",
            None if bench.simulated and verdict == "inconclusive" else verdict in expected,
            "inconclusive: more minutes, or locked clocks; invalid: advisor/gate/validity.py and "
            "what else is on the card",
        )  # fmt: skip
