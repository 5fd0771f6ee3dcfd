"""`compare` over simulated cards: what it rules, where the truth is known."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import fakegpu
from tests.fakegpu import Cards, measuring

ZOO = str(measuring.PROGRAMS / "cuda_zoo.py")
PYTHON = str(fakegpu.PYTHON)
LIMIT_S = 900


def called(cards: Cards, folder: Path, *words: str) -> dict[str, Any]:
    """The JSON object of one call of the command line, which saw these cards."""
    (folder / ".git").mkdir(parents=True, exist_ok=True)
    locks = folder / "locks"
    locks.mkdir(mode=0o700, exist_ok=True)
    environ = measuring.environment(cards, GPU_ADVISOR_RUNTIME_DIR=str(locks))
    command = (sys.executable, "-m", "advisor", *words)
    done = subprocess.run(
        command,
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.stdout.startswith("{"), done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_training_of_two_cards_is_held_up_by_the_exchange(tmp_path: Path) -> None:
    """A card has 8 ms of kernels a step, and 42 ms of gradients on the way to the other one."""
    program = (PYTHON, "-m", "torch.distributed.run", "--standalone", ZOO)
    words = ("replicas", "--ms", "8", "--ballast", "400")
    flags = ("--ranks", "1,2", "--rounds", "2", "--window", "1s", "--budget", "8m", "--json")
    with Cards("rtx-3090", "rtx-3090") as cards:
        found = called(cards, tmp_path, "compare", *flags, "--", *program, *words)
    one, two = found["variants"]
    assert one["ranks"] == 1
    assert two["ranks"] == 2
    assert "the ranks wait for each other" in two["reason"]
    assert two["gain"]["ratio"] < 1.6


def test_the_same_kernels_are_not_slower(tmp_path: Path) -> None:
    """The card bounds both, so that no load of this host decides."""
    arm = (PYTHON, ZOO, "timed", "--ms", "20")
    flags = ("--rounds", "2", "--window", "1s", "--budget", "8m", "--json")
    with Cards("rtx-3090") as cards:
        found = called(cards, tmp_path, "compare", *flags, "--", *arm, "--vs", *arm)
    _, other = found["variants"]
    assert other["gain"]["ratio"] == pytest.approx(1.0, rel=0.1)
    assert other["verdict"] != "slower"
