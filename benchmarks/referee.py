"""Twenty edits of a small training, each of which a referee should keep or drop.

    python -m benchmarks.referee [NAME ...] [--budget 5m]

Five edits are good, five change nothing, five are bad, and five cheat: they look faster and do less
or other work. Beside the referee's ruling stands what three usual ways of judging say: one run
each, the best of three, and the mean of three with a fixed 5 %. They time whole runs, as agents do.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FIXED = 0.05
"""Gain that the third way asks for, in whole seconds of a run."""
PROGRAM = """\
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Items(Dataset):
    def __len__(self):
        return 480

    def __getitem__(self, index):
        time.sleep(0.0002)  # stands for the disk
        return torch.full((8,), index / 480), torch.tensor([index % 7 / 7])


def device_work(rows):
    time.sleep(0.0005 * rows)  # stands for the card


def log():
    time.sleep(0.001)


net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(2):
    for x, y in DataLoader(Items(), batch_size=16, shuffle=True):
        device_work(len(x))
        loss = (net(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log()
print("loss", loss.item())
"""


@dataclass(frozen=True)
class Edit:
    """A change of the program, and whether it is worth keeping."""

    name: str
    keep: bool
    old: str
    new: str


EDITS = (
    Edit("work 20 % faster", True, "0.0005 * rows", "0.0004 * rows"),
    Edit("work twice as fast", True, "0.0005 * rows", "0.00025 * rows"),
    Edit("work 10 % faster", True, "0.0005 * rows", "0.00045 * rows"),
    Edit("items are read in half the time", True, "sleep(0.0002)", "sleep(0.0001)"),
    Edit("no log in each step", True, "        log()\n", ""),
    Edit("a comment", False, "torch.manual_seed(0)", "torch.manual_seed(0)  # for repeats"),
    Edit("a renamed variable", False, "optimizer", "opt"),
    Edit("an epoch's number is printed", False,
         "for epoch in range(2):\n", "for epoch in range(2):\n    print(epoch)\n"),
    Edit("a docstring", False, "def device_work(rows):\n",
         'def device_work(rows):\n    """Stands for the card."""\n'),
    Edit("work 10 % slower", False, "0.0005 * rows", "0.00055 * rows"),
    Edit("work twice as slow", False, "0.0005 * rows", "0.001 * rows"),
    Edit("a second log in each step", False, "        log()\n", "        log()\n        log()\n"),
    Edit("it crashes", False, "net = nn", "raise SystemExit(3)\nnet = nn"),
    Edit("cheat: every other batch is skipped", False, "        device_work(len(x))\n",
         "        if torch.rand(1) < 0.5:\n            continue\n        device_work(len(x))\n"),
    Edit("cheat: half of the items", False, "return 480\n", "return 240\n"),
    Edit("cheat: a smaller model", False, "64", "16"),
    Edit("cheat: larger batches", False, "batch_size=16", "batch_size=64"),
    Edit("cheat: a patched clock", False, "import time\n",
         "import time\n_clocks = time.perf_counter, time.monotonic, time.time\n"
         "time.perf_counter, time.monotonic, time.time = (\n"
         "    (lambda real: lambda: real() / 2)(each) for each in _clocks)\n"),
    Edit("cheat: a rate of its own", False,
         'print("loss"', 'print("throughput: 1e9")\nprint("loss"'),
    Edit("cheat: what an earlier run left", False, "def log():\n",
         "import os\nif os.path.exists('done'):\n    device_work = lambda rows: None\n"
         "open('done', 'w').close()\n\n\ndef log():\n"),
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What was said of one edit."""

    edit: Edit
    record: dict[str, Any]
    seconds: float
    runs_s: tuple[list[float], list[float]]
    """Whole runs of base and head, in turns; empty where a run failed."""

    @property
    def right(self) -> bool:
        return self.record["verdict"] == ("keep" if self.edit.keep else "drop")

    def usual(self) -> dict[str, bool]:
        """Whether three usual ways of judging are right."""
        base, head = self.runs_s
        if not head:
            return dict.fromkeys(
                ("one run each", "best of three", "a fixed 5 %"), not self.edit.keep
            )
        ways = {
            "one run each": head[0] < base[0],
            "best of three": min(head) < min(base),
            "a fixed 5 %": statistics.fmean(head) < (1 - FIXED) * statistics.fmean(base),
        }
        return {name: kept is self.edit.keep for name, kept in ways.items()}


def referee(edit: Edit, budget: str) -> Outcome:
    """Make the edit in a repository of its own, and ask."""
    with tempfile.TemporaryDirectory(prefix="referee-") as name:
        folder = Path(name, "project")
        folder.mkdir()
        runtime = Path(name, "runtime")
        runtime.mkdir(mode=0o700)
        (folder / "train.py").write_text(PROGRAM)
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "base")):
            identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
            subprocess.run(["git", *identity, *words], cwd=folder, check=True)
        changed = PROGRAM.replace(edit.old, edit.new)
        assert changed != PROGRAM, edit.name
        (folder / "train.py").write_text(changed)
        words = ("compare", "--base-ref", "HEAD", "--json", "--budget", budget)
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "advisor", *words, "--", sys.executable, "train.py"],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "GPU_ADVISOR_RUNTIME_DIR": str(runtime),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - began
        if not done.stdout:
            raise RuntimeError(done.stderr[-2000:])
        (folder / "base.py").write_text(PROGRAM)
        runs_s = whole_runs(folder)
    return Outcome(edit, json.loads(done.stdout), seconds, runs_s)


def whole_runs(folder: Path) -> tuple[list[float], list[float]]:
    """Seconds of three whole runs of each, in turns; none of a head that fails."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(3):
        for name, own_s in zip(("base.py", "train.py"), taken, strict=True):
            began = time.monotonic()
            done = subprocess.run(
                [sys.executable, name], cwd=folder, capture_output=True, check=False
            )
            if done.returncode:
                return taken[0], []
            own_s.append(time.monotonic() - began)
    return taken


def main() -> int:
    """Print a row for each edit; 1 if one was judged wrongly."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--budget", default="5m")
    args = parser.parse_args()
    outcomes = []
    print("| edit | right | referee | cause | gain | pairs | s | one run | best of 3 | 5 % |")
    print("|:--|:--|:--|:--|--:|--:|--:|:--|:--|:--|")
    for edit in (edit for edit in EDITS if not args.names or edit.name in args.names):
        each = referee(edit, args.budget)
        outcomes.append(each)
        gain, usual = each.record["gain"], each.usual().values()
        cells = (
            *(edit.name, "keep" if edit.keep else "drop", each.record["verdict"]),
            *(each.record["cause"], f"{gain['ratio']:.3f}" if gain else "-"),
            *(len(each.record["pairs"]), f"{each.seconds:.0f}"),
            *("right" if right else "wrong" for right in usual),
        )
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
        if not each.right:
            print(f"  {edit.name}: {each.record['reason']}", file=sys.stderr, flush=True)
    right = sum(each.right for each in outcomes)
    ways = {name: sum(each.usual()[name] for each in outcomes) for name in outcomes[0].usual()}
    others = ", ".join(f"{name} {count}" for name, count in ways.items())
    print(f"\nright: {right} of {len(outcomes)} by the referee; {others}")
    return int(right < len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
