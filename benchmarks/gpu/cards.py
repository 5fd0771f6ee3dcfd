"""Reference workloads tuned on simulated cards, and the reports that their users would read.

    python -m benchmarks.gpu.cards [WORKLOAD ...] [--cards rtx-3090 ...] [--budget 3m] --output DIR
    python -m benchmarks.gpu.cards --made ...    # torch's CUDA build, cards below the CUDA API

A simulated card says nothing of a real one's speed. It shows what is tried and chosen on a card of
that name and memory, whether the report says so, and whether its figures agree with the driver's
and with each other.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advisor.report.schema import Gain
from benchmarks.gpu.bench import ROOT, environ_of
from benchmarks.gpu.whole import WORKLOADS, Workload, copy_project
from tests.support.contradictions import contradictions

CARDS: dict[str, tuple[dict[str, Any], dict[str, object]]] = {
    "rtx-3090": (
        {"name": "NVIDIA GeForce RTX 3090", "memory_gib": 24.0, "us_per_mb": 1500.0},
        {"capability": "8.6", "power.limit": 350_000, "clock.sm": 1695, "pcie.gen": 4},
    ),
    "rtx-4060": (
        {"name": "NVIDIA GeForce RTX 4060", "memory_gib": 8.0, "us_per_mb": 2400.0},
        {"capability": "8.9", "power.limit": 115_000, "clock.sm": 2460, "pcie.gen": 4},
    ),
    "h100": ({"memory_gib": 80.0, "us_per_mb": 900.0}, {}),
}
"""By profile: the simulated card, and readings of its driver besides an H100's."""
TUNED = ("dem", "emberformer", "relighting", "headpose", "speech")
HEAD = ("workload", "card", "verdict", "gain", "written", "precision", "utilisation", "compute",
        "contradicted")  # fmt: skip
STEPS = ('"n_timestep": 1000', '"n_timestep": 100')
"""Text of the config that is replaced: a CPU makes the numbers of every step."""


def main(argv: list[str] | None = None) -> int:
    """0 if every call came to an answer, else 1."""
    parser = argparse.ArgumentParser(prog="benchmarks.gpu.cards", description=__doc__)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(TUNED))
    parser.add_argument("--cards", nargs="+", choices=CARDS, default=tuple(CARDS))
    parser.add_argument("--budget", default="3m")
    parser.add_argument("--made", action="store_true", help="torch's CUDA build, on made cards")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    print(f"| {' | '.join(HEAD)} |\n|:--|:--|:--|:--|:--|:--|--:|--:|:--|", flush=True)
    complete, tune = True, tuned_on_made_card if args.made else tuned
    for card in args.cards:
        for workload in args.workloads or TUNED:
            if args.made and WORKLOADS[workload].needs_numbers:
                continue
            stem = args.output / f"{workload}-{card}"
            tune(workload, card, args.budget, stem)
            written = stem.with_suffix(".json").exists()
            print(row(workload, card, stem) if written else f"| {workload} | {card} | no report |")
            sys.stdout.flush()
            complete &= written
    return int(not complete)


def tuned_on_made_card(workload: str, card: str, budget: str, stem: Path) -> None:
    """Report of `optimize` in torch's CUDA build, with the networks as a real card gets them."""
    from tests import fakegpu

    if why := fakegpu.missing():
        raise SystemExit(why)
    work, scale = WORKLOADS[workload], "4" if card == "h100" else "2"
    with tempfile.TemporaryDirectory(prefix="gpu-cards-") as folder, fakegpu.Cards(card) as cards:
        project = Path(folder) / "project"
        copy_project(project, python=str(fakegpu.PYTHON))
        base = {**environ_of(Path(folder), alone=True), "PYTHONPATH": str(ROOT)}
        optimized(work, project, cards.environment(base), budget, stem, "--scale", scale,
                  python=str(fakegpu.PYTHON))  # fmt: skip


def tuned(workload: str, card: str, budget: str, stem: Path) -> None:
    """Report of `optimize` on a copy of the repository, at a CPU's size."""
    from tests import nvml_stub, simulated_gpu

    work = WORKLOADS[workload]
    facts, readings = CARDS[card]
    shown = simulated_gpu.Card(memory_scale=256.0, copy_us_per_mb=2_000.0, **facts)
    with tempfile.TemporaryDirectory(prefix="gpu-cards-") as folder:
        project = Path(folder) / "project"
        copy_project(project)
        if workload == "dem":
            path = project / str(work.config)
            path.write_text(path.read_text("utf-8").replace(*STEPS), "utf-8")
        table = {**nvml_stub.H100, **readings, "name": shown.name, "uuid": shown.uuid}
        table["memory.total"] = round(shown.memory_gib * 2**30)
        stub = nvml_stub.build(Path(folder) / "nvml")
        stub.write(table)
        with nvml_stub.metered(stub, table) as meter:
            base = stub.env({**environ_of(Path(folder), alone=True), **meter})
            environ = simulated_gpu.environment((shown,), base=base)
            optimized(work, project, environ, budget, stem)


def optimized(
    work: Workload, project: Path, environ: Mapping[str, str], budget: str, stem: Path,
    *more: str, python: str = sys.executable,
) -> None:  # fmt: skip
    """Tune in `project`, and keep report.md and report.json as `stem`."""
    words = [*(word.format(config=work.config) for word in work.program), *more]
    subprocess.run(
        [python, *words, *work.once], cwd=project, env=environ, capture_output=True, check=False
    )  # its data, made once
    done = subprocess.run(
        [python, "-m", "advisor", "optimize", *filter(None, [work.config]), "--window", "2s",
         "--budget", budget, "--", python, *words],
        cwd=project, env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if not (project / "report.json").exists():
        print(done.stderr[-3000:], file=sys.stderr)
        return
    for suffix in (".md", ".json"):
        shutil.copy(project / f"report{suffix}", stem.with_suffix(suffix))


def row(workload: str, card: str, stem: Path) -> str:
    """A line of the table: the verdict, the driver's figure beside the tool's own share, and what
    disagrees.
    """
    page = stem.with_suffix(".md").read_text(encoding="utf-8")
    report: dict[str, Any] = json.loads(stem.with_suffix(".json").read_text(encoding="utf-8"))
    gain, before = report.get("gain") or {}, report["before"]
    interval = Gain.model_validate(gain).text if gain else "-"
    written = ", ".join(f"{c['kind']} {c['old']} to {c['new']}" for c in report["changes"])
    precision = "; ".join(
        f"{each['path'] or each['kind']}: {each['outcome']}"
        for each in report["decisions"]
        if each["kind"] in {"precision", "cudnn_benchmark"}
    )
    util, share = before.get("gpu_util_pct"), (before.get("shares") or {}).get("compute")
    figures = f"{util if util is None else round(util)} | {share and round(100 * share)}"
    return (
        f"| {workload} | {card} | {report['verdict']} | {interval} | {written or '-'} "
        f"| {precision or '-'} | {figures} | {'; '.join(contradictions(report, page)) or '-'} |"
    )


if __name__ == "__main__":
    raise SystemExit(main())
