"""Installs torch's CUDA build with the stubs, or runs a command over simulated cards.

python -m tests.fakegpu install
python -m tests.fakegpu run [--card h100[,h100]] [--full GIB] [--slower N] -- COMMAND
"""

import argparse
import subprocess
import sys

from tests import fakegpu
from tests.fakegpu import building

PACKAGES = (
    "torch==2.14.1", "torchvision==0.29.1", "numpy", "pyyaml", "pillow", "matplotlib",
    "jinja2>=3.1", "markdown-it-py>=3", "nvidia-ml-py>=12", "psutil>=5.9", "pydantic>=2.11",
    "rich>=13",
)  # fmt: skip
"""torch's default wheel for Linux is a CUDA build; the rest is what programs and the tool need."""


def main() -> int:
    """Exit code of the command; 0 once installed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("install", help=f"into {fakegpu.VENV}: 5.5 GB, some minutes")
    run = actions.add_parser("run", help="run a command over simulated cards")
    run.add_argument("--card", default="rtx-3090", help="rtx-3090, rtx-4060, h100; with commas")
    run.add_argument("--full", type=float, default=0.0, help="GiB of each that others hold")
    run.add_argument("--slower", type=float, default=1.0, help="times as slow as the data sheet")
    run.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    if args.action == "install":
        subprocess.run([sys.executable, "-m", "venv", str(fakegpu.VENV)], check=True)
        subprocess.run([str(fakegpu.PYTHON), "-m", "pip", "install", *PACKAGES], check=True)
        building.build(fakegpu.VENV)
        return 0
    if why := fakegpu.missing():
        raise SystemExit(why)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    with fakegpu.Cards(*args.card.split(","), full_gib=args.full, slower=args.slower) as cards:
        return subprocess.run(command, env=cards.environment(), check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
