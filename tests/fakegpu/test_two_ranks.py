"""Two ranks on two cards, whose gradients are exchanged over NCCL."""

import json
import subprocess

import pytest

from advisor.model import MeasurePlan
from advisor.report.bottleneck import diagnose
from tests import fakegpu
from tests.fakegpu import Cards, measuring
from tests.fakegpu.conftest import Measure
from tests.fakegpu.test_twenty_programs import POINTS, RATE_OFF, longest_gap

TWO = ("rtx-3090", "rtx-3090")
PLAN = MeasurePlan(measure_s=2.0, min_steps=8)


def test_ranks_exchange_what_is_small_and_the_time_of_what_is_large():
    """The first to come waits on the card for the other one, and its host goes on."""
    program = measuring.PROGRAMS / "cuda_exchange.py"
    command = (fakegpu.PYTHON, *measuring.TORCHRUN, "2", program)
    with Cards(*TWO) as cards:
        environ = measuring.environment(cards)
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    first, late = sorted(told, key=lambda each: each["rank"])
    for each in (first, late):
        assert each["summed"] == [3, 3, 3, 3]
        assert each["objects"] == [{"rank": 0}, {"rank": 1}]
        assert each["told"] == [{"told": 1}]
        assert each["host_ms"] < 100
    copied_ms = 256 * 1.048576 / 10  # over a link of 10 GB/s
    assert late["card_ms"] == pytest.approx(copied_ms, rel=0.1)
    assert first["card_ms"] > 300


def test_the_rates_of_ranks_add_up(measured: Measure):
    """Each has half of the samples, by the ranks' own events."""
    found = measured("cuda_zoo.py", "replicas", "--ms", "8", cards=TWO, ranks=2, plan=PLAN)
    own = found.own_rate()
    assert own is not None
    assert found.run.ranks == 2
    assert found.run.units_per_s == pytest.approx(own, rel=RATE_OFF + longest_gap(found))


def test_a_rank_that_is_late_on_its_card_is_named(measured: Measure):
    """Its host has more to do, and the other card waits for it: neither computed meanwhile."""
    words = ("replicas", "--ms", "8", "--late", "40")
    found = measured("cuda_zoo.py", *words, cards=TWO, ranks=2, plan=PLAN)
    late, shares = found.run.straggler, found.run.shares
    assert late is not None
    assert late.rank == 1
    assert late.part == "other"
    assert late.own_ms - late.others_ms == pytest.approx(40, rel=0.3)
    assert shares.compute is not None
    assert shares.compute <= found.busy(card=1) + POINTS


def test_an_exchange_is_no_computing(measured: Measure):
    """Gradients of 400 MiB take most of a step over a link of 10 GB/s."""
    words = ("replicas", "--ms", "8", "--ballast", "400")
    found = measured("cuda_zoo.py", *words, cards=TWO, ranks=2, plan=PLAN)
    shares = found.run.shares
    assert shares.compute is not None
    assert shares.exchange is not None
    assert shares.compute <= found.busy() + POINTS
    assert shares.exchange <= found.busy("exchange") + POINTS
    sentence = diagnose([found.run, found.run])
    assert sentence is not None
    assert sentence.name == "exchange", shares
