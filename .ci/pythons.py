"""Install the wheel under several Pythons, and tune the tutorial's program under others.

    python .ci/pythons.py --hosts python3.11 python3.13 --programs python3.9=2.4.1 python3.13=2.9.1

Each host gets the wheel in a clean environment. The first of them tunes the tutorial's program in
an environment of each `--programs PYTHON=TORCH`. PyPI's torch brings gigabytes; one is there at a
time. Exit code 1 if a row is not improved.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUDGET = "3m"
STARTS = 5


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", nargs="+", required=True, metavar="PYTHON")
    parser.add_argument("--programs", nargs="*", default=[], metavar="PYTHON=TORCH")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpu-advisor-pythons-") as name:
        folder = Path(name)
        wheel = built(folder / "wheel")
        print(f"{wheel.name}: {wheel.stat().st_size / 1024:.0f} KiB\n")
        print("| host | packages | installed | --help |\n|:--|--:|--:|--:|")
        tools = [
            host_row(python, wheel, folder / f"host{n}")
            for n, python in enumerate(args.hosts)
        ]
        print(
            "\n| program's Python | torch | verdict | gain | took |\n|:--|:--|:--|:--|--:|"
        )
        rows = [program_row(tools[0], *pair.split("=")) for pair in args.programs]
    return int(not all(rows))


def run(*words: object, cwd: Path | None = None, check: bool = True) -> str:
    """Stdout of a command that knows nothing of this tree. Raises CalledProcessError."""
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL"))
    }
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd or tempfile.gettempdir(),
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=check,
    )
    return done.stdout


def built(folder: Path) -> Path:
    """The wheel of this tree."""
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def environment(python: str, folder: Path, *packages: object) -> Path:
    """The `bin` of a new environment."""
    run(python, "-m", "venv", folder)
    run(folder / "bin/python", "-m", "pip", "install", "-q", "--no-compile", *packages)
    return folder / "bin"


def host_row(python: str, wheel: Path, folder: Path) -> Path:
    """Install the wheel, print its row, and return the tool."""
    binaries = environment(python, folder, wheel)
    version = run(binaries / "python", "--version").strip()
    packages = json.loads(run(binaries / "python", "-m", "pip", "list", "--format", "json"))
    installed = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    seconds = []
    for _ in range(STARTS):
        began = time.perf_counter()
        run(binaries / "gpu-advisor", "--help")
        seconds.append(time.perf_counter() - began)
    size = f"{installed / 2**20:.0f} MiB"
    print(
        f"| {version} | {len(packages) - 1} | {size} | {statistics.median(seconds):.2f} s |"
    )
    return binaries / "gpu-advisor"


def program_row(tool: Path, python: str, torch: str) -> bool:
    """Tune the tutorial's program under another Python, and print its row."""
    with tempfile.TemporaryDirectory(prefix="gpu-advisor-program-") as name:
        folder = Path(name)
        binaries = environment(
            python, folder / "venv", f"torch=={torch}", "numpy", "pyyaml"
        )
        tutorial = (ROOT / "docs/tutorial.md").read_text("utf-8")
        blocks = re.findall(r"```sh\n(.*?)```", tutorial, re.DOTALL)
        run(
            "bash", "-ec", next(each for each in blocks if "predict.py" in each), cwd=folder
        )
        words = ("optimize", "predict.yaml", "--budget", BUDGET, "--json", "--")
        program = (binaries / "python", "predict.py", "predict.yaml")
        began = time.perf_counter()
        found = json.loads(run(tool, *words, *program, cwd=folder, check=False))
        took_s = time.perf_counter() - began
        version = run(binaries / "python", "--version").strip()
        torchs = run(
            binaries / "python", "-c", "import torch; print(torch.__version__)"
        ).strip()
        gain = found["gain"] or {}
        shown = "{ratio:.2f}x ({low:.2f} to {high:.2f})".format(**gain) if gain else "-"
        print(
            f"| {version} | {torchs} | {found['verdict']} | {shown} | {took_s:.0f} s |",
            flush=True,
        )
    return bool(found["verdict"] == "improved")


if __name__ == "__main__":
    sys.exit(main())
