"""`compare` and `gate` over simulated cards: what they rule, where the truth is known."""

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
    """A card has 8 ms of kernels a step, and 84 ms of gradients on the way to the other one."""
    program = (PYTHON, "-m", "torch.distributed.run", "--standalone", ZOO)
    words = ("replicas", "--ms", "8", "--ballast", "400")
    flags = ("--ranks", "1,2", "--rounds", "2", "--window", "1s", "--budget", "8m", "--json")
    with Cards("rtx-3090", "rtx-3090") as cards:
        found = called(cards, tmp_path, "compare", *flags, "--", *program, *words)
    one, two = found["variants"]
    assert (one["ranks"], two["ranks"]) == (1, 2)
    assert "the ranks wait for each other" in two["reason"]
    assert two["gain"]["ratio"] < 1.6


@pytest.mark.parametrize(("other_ms", "verdict"), [(20.0, "same"), (25.0, "slower")])
def test_kernels_that_take_a_quarter_longer_are_slower(other_ms, verdict, tmp_path: Path) -> None:
    """The card bounds both, so that no load of this host decides."""
    arms = [(PYTHON, ZOO, "timed", "--ms", str(ms)) for ms in (20.0, other_ms)]
    flags = ("--rounds", "2", "--window", "1s", "--budget", "8m", "--json")
    with Cards("rtx-3090") as cards:
        found = called(cards, tmp_path, "compare", *flags, "--", *arms[0], "--vs", *arms[1])
    _, other = found["variants"]
    assert other["gain"]["ratio"] == pytest.approx(22 / (other_ms + 2), rel=0.1)
    if verdict == "slower":
        assert other["verdict"] == verdict
