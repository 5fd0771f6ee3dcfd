"""Programs of many kinds on three cards: rate, share and memory against the card's own account.

A share of computing is told as "at least": it may be below the card's truth and never above it.
What each program is held up by is not asserted here, since that depends on this host's speed, but
what it cannot be is: a card that worked all the time is not waited for.
"""

import itertools
import re
from dataclasses import asdict

import pytest

from advisor.analysis.device_time import REFUTED
from advisor.model import MeasurePlan, Run
from advisor.report.bottleneck import diagnose
from advisor.report.schema import Bottleneck
from tests.fakegpu.conftest import Measure
from tests.fakegpu.measuring import TWENTY, Measured

PLAN = MeasurePlan(measure_s=2.0, min_steps=8)
CARDS = ("rtx-3090", "rtx-4060", "h100")
POINTS = 0.05
"""What a share may be above the truth: this host's clocks, and parts of 10 ms at the edges."""
RATE_OFF = 0.03
BUSY = 0.9
"""A card that works so much of the time is its own limit."""


def longest_gap(found: Measured) -> float:
    """Share of the window between two of the program's marks: what its rate may be off."""
    times = [each["time"] for each in found.own]
    gaps = (after - before for before, after in itertools.pairwise(times))
    run = found.run
    return max(gaps, default=0.0) / (run.window_end - run.window_start)


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("words", TWENTY, ids=lambda words: words.replace(" ", "-"))
def test_a_program_is_read_as_its_card_saw_it(words, card, measured: Measure) -> None:
    """Rate within 3 % of its own events; no share above the truth; no wait for a busy card."""
    found = measured("cuda_zoo.py", *words.split(), cards=(card,), plan=PLAN)
    run, busy = found.run, found.busy()
    own = found.own_rate()
    assert own is not None
    assert run.units_per_s == pytest.approx(own, rel=RATE_OFF + longest_gap(found))
    assert run.shares.compute is not None
    assert run.shares.compute <= busy + POINTS
    sentence = diagnose([run, run])
    assert sentence is not None
    if busy > BUSY:
        assert sentence.name == "compute", run.shares
    assert (run.peak_mem_gib or 0.0) <= (run.peak_device_gib or 0.0)
    assert_agrees(run, sentence)


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ("timed --ms 8", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
        ("timed --ms 8", {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}),
        ("reduced", {}),
    ],
    ids=["expandable segments", "cudaMallocAsync", "reduce-overhead"],
)
def test_other_ways_to_allocate_and_to_launch_have_their_own_rate(
    words, settings, measured: Measure
) -> None:
    """The allocator's other backends, and graphs that torch itself captures."""
    found = measured("cuda_zoo.py", *words.split(), env=settings, plan=PLAN)
    own = found.own_rate()
    assert own is not None
    assert found.run.units_per_s == pytest.approx(own, rel=RATE_OFF + longest_gap(found))
    assert (found.run.shares.compute or 0.0) <= found.busy() + POINTS


def assert_agrees(run: Run, told: Bottleneck) -> None:
    """Hold the figures of one page against each other: they are of the same window."""
    assert sum(filter(None, asdict(run.shares).values())) == pytest.approx(1.0, abs=0.01)
    (card,) = run.cards
    assert (run.peak_device_gib or 0.0) <= card.total_gib
    seen_pct = run.telemetry.gpu_util_pct
    if seen_pct is not None:
        assert (run.shares.compute or 0.0) <= seen_pct / 100 + REFUTED
    for text in (told.sentence, *told.evidence):
        for percent in re.findall(r"([\d.]+) %", text):
            assert float(percent) <= 100, text
