"""Trainings of several gloo ranks, one of which has a fault.

    python -m benchmarks.rank_faults [FAULT ...] [--times 20]

Each fault is profiled that many times, in turn with two and with four ranks. The answer must name
the rank. A rate must be within 2 % of what the ranks themselves counted meanwhile.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """\
import os, signal, sys, time
import torch, torch.distributed as dist

fault, faulty, own = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rank = int(os.environ["RANK"])
if fault == "no record" and rank == faulty and not sys.flags.isolated:
    os.execv(sys.executable, [sys.executable, "-I", *sys.argv])
torch.set_num_threads(1)
dist.init_process_group("gloo")
late = rank == faulty
count = open(f"{own}-{rank}", "w", buffering=1)


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, number):
        if fault == "slow loader" and late:
            time.sleep(0.001)
        return torch.zeros(16)


class Net(torch.nn.Linear):
    def forward(self, x):
        time.sleep(0.028 if fault == "slow forward" and late else 0.02)
        return super().forward(x)


data, model = Data(), Net(16, 2)
if fault != "alone":
    model = torch.nn.parallel.DistributedDataParallel(model)
batch = 16 if fault == "batches" and late else 8
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
sampler = torch.utils.data.DistributedSampler(data, shuffle=False)
loader = torch.utils.data.DataLoader(data, batch_size=batch, sampler=sampler)
for number, x in enumerate(loader):
    if late and number == 30:
        if fault == "raise":
            raise RuntimeError("a shard is missing")
        if fault == "memory":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        if fault == "hang":
            time.sleep(1000)
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    print(time.time(), batch, file=count)
"""
HELD = "rank {rank} holds the others up: | most of that is "
TOLD = {
    "none": '"group_batch": {all}.0 | "group_size": {ranks}',
    "slow loader": HELD + "waiting for data",
    "slow forward": HELD + "compute",
    "batches": '"group_batch": {uneven}.0',
    "alone": '"group_size": 1 | "group_batch": null',
    "no record": "{less} of {ranks} ranks have a window",
    "raise": "crash-step | rank {rank}: runtimeerror: a shard is missing",
    "memory": "gpu-oom | rank {rank}: outofmemoryerror",
    "kill": "killed | rank {rank}: ",
    "hang": "hang | rank {rank} at train.py:44",
}
"""By fault: the texts that the answer must hold, in small letters."""
RATE_WITHIN = 0.02


def outcome(fault: str, ranks: int, rank: int) -> str:
    """Outcome of one call in a few words; `right` is the only good one."""
    with tempfile.TemporaryDirectory(prefix="rank-faults-") as temporary:
        folder, own = Path(temporary), Path(temporary, "own")
        (folder / ".git").mkdir()
        (folder / "train.py").write_text(PROGRAM)
        launcher = f"{sys.executable} -m torch.distributed.run --standalone --nproc_per_node"
        words = [*launcher.split(), str(ranks), "train.py", fault, str(rank), str(own)]
        (folder / "gpu-advisor.toml").write_text('[defaults]\nhang-limit = "8s"\n')
        environ = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "GPU_ADVISOR_RUNTIME_DIR": temporary,
            "GPU_ADVISOR_ISOLATION": "guard",  # the ranks' own count is a file
        }
        flags = ["--window", "2s", "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "advisor", "profile", *flags, "--", *words],
            cwd=folder, env=environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
        shown = (done.stdout + done.stderr).lower()
        facts = {
            "ranks": ranks,
            "rank": rank,
            "less": ranks - 1,
            "all": 8 * ranks,
            "uneven": 8 * ranks + 8,
        }
        for text in TOLD[fault].format(**facts).split(" | "):
            if text not in shown:
                return f"not told: {text} by {shown[-1500:]}"
        off = rate_error(json.loads(done.stdout), own) if done.returncode == 0 else 0.0
        return "right" if off <= RATE_WITHIN else f"rate off by {off:.1%}"


def rate_error(found: dict[str, Any], own: Path) -> float:
    """Compare the rate of the last run with what the ranks counted in its window."""
    start, end = found["window"]["start"], found["window"]["end"]
    counted = 0.0
    for path in own.parent.glob(f"{own.name}-*"):
        marks = [tuple(map(float, line.split())) for line in path.read_text().splitlines()]
        inside = [mark for mark in marks if start <= mark[0] <= end]
        counted += sum(items for _, items in inside[1:]) / (inside[-1][0] - inside[0][0])
    return abs(found["units"] / (end - start) / counted - 1)


def main() -> None:
    """Print how many answers were right, by fault."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=", ".join(TOLD))
    parser.add_argument("--times", type=int, default=20)
    args = parser.parse_args()
    print("| fault | right | seconds a call |\n|:--|--:|--:|", flush=True)
    for fault in args.faults or TOLD:
        chance, ends, begun = random.Random(fault), Counter[str](), time.monotonic()
        for number in range(args.times):
            ranks = (2, 4)[number % 2]
            ends[outcome(fault, ranks, chance.randrange(ranks))] += 1
        took_s = (time.monotonic() - begun) / args.times
        print(f"| {fault} | {ends.pop('right', 0)} of {args.times} | {took_s:.0f} |", flush=True)
        for text in ends:
            print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
