"""A simulated CUDA device for programs that run on a CPU build of torch, unchanged.

    env = simulated_gpu.environment(cards=[Card()], base=os.environ)
    subprocess.run([python, "train.py"], env=env)

In such a process `torch.cuda` tells of the cards, tensors can be put on them and say so, and each
operation on them queues work on a stream of its own time: asynchronous, first in, first out, with
a bound on how far the host may run ahead. Numbers are computed by the CPU, at once.

    device.py     cards, streams, memory and the truth of what each did; no torch
    own_time.py   time in which others take nothing from the program
    surface.py    torch.cuda's names over those cards
    placement.py  tensors that say they lie on a card
    site/         the sitecustomize that puts all of it in, found through PYTHONPATH

What it is good for: what a program's host is told while its device lags behind, waits, is asked to
wait for, or runs out of memory. What it is not: a speed of anything.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

VARIABLE = "SIMULATED_GPU"
TRUTH = "SIMULATED_GPU_TRUTH"
OWN_TIME = "SIMULATED_GPU_OWN_TIME"
METER = "SIMULATED_GPU_METER"
"""Local port that is told of the cards' use; see `nvml_stub.metered`."""
SITE = Path(__file__).parent / "site"


@dataclass(frozen=True, kw_only=True)
class Card:
    """One simulated card, in the order in which CUDA shows them."""

    name: str = "NVIDIA H100 80GB HBM3"
    uuid: str = "GPU-11111111-0000-0000-0000-000000000001"
    memory_gib: float = 80.0
    memory_scale: float = 1.0
    """Bytes that each byte of a tensor takes: a small program fills a large card."""
    kernel_us: float = 4.0
    """Of each operation, whatever it does."""
    us_per_mb: float = 1.0
    """Of each megabyte that an operation yields, on top."""
    copy_us_per_mb: float = 40.0
    """Of each megabyte copied from the host."""


def environment(
    cards: Sequence[Card] = (Card(),),
    base: Mapping[str, str] = os.environ,
    truth: Path | None = None,
    *,
    own_time: bool = False,
) -> dict[str, str]:
    """`base` with the cards in it; what they did is written to `truth` as it happens.

    `own_time`: the program's time passes only while it computes or sleeps. It must be of one
    thread and wait for no other process.
    """
    path = os.pathsep.join([str(SITE), *filter(None, [base.get("PYTHONPATH")])])
    added = {VARIABLE: json.dumps([asdict(card) for card in cards]), "PYTHONPATH": path}
    added |= {TRUTH: str(truth)} if truth else {}
    added |= {OWN_TIME: "1"} if own_time else {}
    return {**base, **added}


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What the cards of one process did."""

    busy: dict[int, list[tuple[float, float]]]
    """By card: spans of epoch seconds in which a stream had work."""
    copies: dict[int, list[tuple[float, float]]]
    """Of those, the ones in which it copied from the host."""
    contexts: list[int]
    """Cards that the process held a context on."""
    asked_early: int
    """How often the driver was asked for cards before the program used one."""
    spoilt: list[str]
    """What was done in a capture that must not be."""
    captured: list[str]
    """Of each operation that a capture took up, the file that asked for it."""

    def busy_share(self, card: int, start: float, end: float) -> float:
        """Share of a window of epoch seconds in which the card had work."""
        return covered(self.busy.get(card, []), start, end) / (end - start)

    def copied_share(self, card: int, start: float, end: float) -> float:
        """Of that, the share in which it copied from the host."""
        return covered(self.copies.get(card, []), start, end) / (end - start)


def covered(spans: Sequence[tuple[float, float]], start: float, end: float) -> float:
    """Seconds of [start, end] in the spans, of which several streams may overlap."""
    total, until = 0.0, start
    for a, b in sorted(spans):
        total += max(0.0, min(b, end) - max(a, until))
        until = max(until, b)
    return total


def read_truth(path: Path) -> Truth:
    """What `environment(truth=path)` was told."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def spans(*kinds: str) -> dict[int, list[tuple[float, float]]]:
        found: dict[int, list[tuple[float, float]]] = {}
        for kind, card, start, end in lines:
            if kind in kinds:
                found.setdefault(card, []).append((start, end))
        return found

    return Truth(
        busy=spans("work", "copy"),
        copies=spans("copy"),
        contexts=[card for kind, card, *_ in lines if kind == "context"],
        asked_early=sum(kind == "early" for kind, *_ in lines),
        spoilt=[what for kind, what, *_ in lines if kind == "spoilt"],
        captured=[file for kind, file, *_ in lines if kind == "captured"],
    )
