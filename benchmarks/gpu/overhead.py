"""What the probe adds to a step on this card: on and off by turns in one process.

    python -m benchmarks.gpu.overhead [--rounds 8]

Prints one JSON object: microseconds and share added a step, median over the rounds with the lowest
and the highest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time

import torch

from advisor.probe import control, hooks
from advisor.probe.session import Session
from benchmarks.gpu.program import SIDE, SIMULATED, Kernels

ROWS = 16
STEPS = 60
WARM = 40


def steps(model: torch.nn.Module, optimizer: torch.optim.Optimizer, count: int, ms: float) -> float:
    """Seconds that so many training steps take, the card's work included."""
    data = torch.utils.data.DataLoader([torch.rand(3, SIDE, SIDE)] * ROWS * count, batch_size=ROWS)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for rows in data:
        optimizer.zero_grad()
        model(rows.to("cuda")).square().mean().backward()
        KERNELS.queue(ms)
        optimizer.step()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def probed(count: int, ms: float, folder: str) -> float:
    """The same under the probe, once it only counts steps."""
    session = Session({"records": folder, "plan": {"mode": "observe"}})
    hooks.install(torch, session)
    try:
        steps(MODEL, OPTIMIZER, WARM, ms)
        control.tick(session, time.perf_counter())
        if session.device is None:
            control.begin_clock(session)
        session.switch(counting=True, calls=False)
        return steps(MODEL, OPTIMIZER, count, ms)
    finally:
        session.patches.undo()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--kernel", type=float, default=5.0, help="ms of work a step")
    args = parser.parse_args()
    bare, with_it = [], []
    with tempfile.TemporaryDirectory() as folder:
        steps(MODEL, OPTIMIZER, WARM, args.kernel)
        for number in range(args.rounds):
            for arm in ("bare", "probed") if number % 2 else ("probed", "bare"):
                if arm == "bare":
                    steps(MODEL, OPTIMIZER, WARM, args.kernel)
                    bare.append(steps(MODEL, OPTIMIZER, STEPS, args.kernel))
                else:
                    with_it.append(probed(STEPS, args.kernel, folder))
    added = [(b - a) / STEPS for a, b in zip(bare, with_it, strict=True)]
    shares = [b / a - 1 for a, b in zip(bare, with_it, strict=True)]
    added_cost = {
        "step_ms": 1000 * statistics.median(bare) / STEPS,
        "added_us": [1e6 * value for value in (statistics.median(added), min(added), max(added))],
        "added_share": [statistics.median(shares), min(shares), max(shares)],
    }
    print(json.dumps(added_cost))


torch.set_num_threads(1)
KERNELS = Kernels(torch.device("cuda"))
MODEL = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Conv2d(16, 3, 3)
).to("cuda")
OPTIMIZER = torch.optim.AdamW(MODEL.parameters(), lr=1e-4, foreach=False if SIMULATED else None)

if __name__ == "__main__":
    main()
