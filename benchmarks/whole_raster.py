"""Does what `optimize` wrote for the DEM config hold on the whole raster, with seeds it never saw?

    python -m benchmarks.whole_raster [--calls 5] [--seeds 3] [--json FILE]
    python -m benchmarks.whole_raster --config WRITTEN.json ...     # judge these, call nothing

Each call is README's command one in a folder of its own. What it wrote and the original then fill
all 32 tiles with equal new seeds, and the declared measures are held against their tolerances, by
the mean over the seeds. Equal configs are filled once, and so is the original.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from advisor import settings
from advisor.quality import Pair, Values, judge, read_measures
from benchmarks.busy import ROOT, environment, laid_out

CONFIG = Path("config/dem_completion.json")
WORKLOAD = "dem-completion"
FIRST_SEED = 90_001
"""Far from those that choose and confirm, which count up from the call's own."""


def called(folder: Path) -> str:
    """The config as one call of `optimize` left it."""
    project = laid_out(folder)
    done = subprocess.run(
        [sys.executable, "-m", "advisor", "optimize", str(CONFIG)],
        cwd=project,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    said = (done.stdout or done.stderr).strip().splitlines()
    print(f"exit {done.returncode}: {said[0] if said else ''}", file=sys.stderr, flush=True)
    if done.returncode:
        sys.exit(done.stderr)
    return (project / CONFIG).read_text(encoding="utf-8")


class Raster:
    """Whole fills by config and seed, each made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[tuple[str, int], Values] = {}
        self._measures = settings.load(ROOT / "gpu-advisor.toml").workload[WORKLOAD].quality

    def filled(self, config: str, seed: int) -> Values:
        """What a fill of all tiles printed of the declared measures."""
        if (config, seed) not in self._made:
            path = self._folder / "config.json"
            path.write_text(config, encoding="utf-8")
            words = ["-m", "benchmarks.workloads.dem_completion.run", "-p", "test"]
            weights = ROOT / "benchmarks/workloads/dem_completion/weights.pt"
            done = subprocess.run(
                [
                    *[sys.executable, *words, "-c", str(path), "--seed", str(seed)],
                    *["--resume_state", str(weights)],
                ],
                cwd=self._folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                check=True,
            )
            self._made[config, seed] = read_measures(self._measures, done.stdout)
        return self._made[config, seed]

    def held(self, original: str, written: str, seeds: int) -> bool:
        """Whether every measure is inside its tolerance; prints a row for each."""
        pairs: list[Pair] = [
            (self.filled(original, seed), self.filled(written, seed))
            for seed in range(FIRST_SEED, FIRST_SEED + seeds)
        ]
        found = judge(self._measures, pairs, "chosen")
        for each in found:
            told = [f"{value:.4f}" if value is not None else "-"
                    for value in (each.reference, each.value, each.limit)]  # fmt: skip
            print(f"| {each.measure} | {' | '.join(told)} | {'yes' if each.within else 'NO'} |",
                  flush=True)  # fmt: skip
        return all(each.within for each in found)


def main() -> None:
    """A row for each measure of each config, and how many configs held."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--config", type=Path, action="append", help="written before; no calls")
    parser.add_argument("--json", type=Path, help="keep the written configs here")
    args = parser.parse_args()
    original = (ROOT / CONFIG).read_text(encoding="utf-8")
    if args.config:
        written = [path.read_text(encoding="utf-8") for path in args.config]
    else:
        written = []
        for _ in range(args.calls):
            with tempfile.TemporaryDirectory(prefix="raster-") as folder:
                written.append(called(Path(folder)))
            if args.json:
                args.json.write_text(json.dumps(written) + "\n", encoding="utf-8")
    print("| measure | original | written | limit | inside |\n|:--|--:|--:|--:|:--|", flush=True)
    with tempfile.TemporaryDirectory(prefix="raster-") as folder:
        raster = Raster(Path(folder))
        held = sum(raster.held(original, config, args.seeds) for config in written)
    print(f"\n{held} of {len(written)} inside all tolerances, with {args.seeds} seeds each")


if __name__ == "__main__":
    main()
