"""Made bottlenecks over a simulated device: the cause that is named is the one that was made, and
the shares are those of what the device and its host really did."""

import pytest

from advisor.report.bottleneck import diagnose
from tests.runs import a_run
from tests.simulated_gpu import Card

POINTS = 0.05
"""What a share may be off."""
COPY_US = 24_000.0
H100, *OTHERS = (
    Card(copy_us_per_mb=COPY_US),
    Card(name="NVIDIA GeForce RTX 3090", memory_gib=24, kernel_us=6.0, copy_us_per_mb=COPY_US),
    Card(name="NVIDIA GeForce RTX 4060", memory_gib=8, kernel_us=5.0, copy_us_per_mb=COPY_US),
)

QUICK = (
    ("other", "--train --loader --host 80 --kernel 19"),
    ("launch", "--train --loader --small 300"),
    ("sync", "--train --loader --host 10 --kernel 12 --item"),
    ("compute", "--train --loader --host 2 --kernel 60"),
)
SLOW = (
    ("data_wait", "--train --loader --fetch 20 --kernel 8"),
    ("data_wait", "--loader --fetch 15 --kernel 5 --item"),
    ("other", "--host 30 --kernel 8"),
    ("other", "--train --loader --host 80 --kernel 19 --item"),
    ("launch", "--loader --small 300 --host 1"),
    ("host_to_device", "--train --loader --copied 512 --kernel 5"),
    ("host_to_device", "--loader --copied 512 --kernel 5 --item"),
    ("compute", "--loader --kernel 60 --item"),
)


CASES = (
    *((H100, *case) for case in QUICK),
    *(pytest.param(H100, *case, marks=pytest.mark.slow) for case in SLOW),
    *(
        pytest.param(card, *case, marks=pytest.mark.slow)
        for card in OTHERS
        for case in (*QUICK, *SLOW)
    ),
)


def in_words(value: object) -> str:
    return value.name if isinstance(value, Card) else str(value).replace("--", "").replace(" ", "-")


@pytest.mark.parametrize(("card", "cause", "words"), CASES, ids=in_words)
def test_the_made_bottleneck_is_named(card, cause, words, on_cards) -> None:
    """And the device's share of the time is that of its own account."""
    found = on_cards(*words.split(), cards=(card,))
    reading, shares = found.outcome.measured, found.outcome.measured.shares
    run = a_run(shares=shares, wait_share=reading.wait_share, effects=reading.effects)
    assert diagnose([run, run]).name == cause, shares
    start, end = found.window
    if cause != "launch":  # there the device works between the launches, and nobody can see that
        busy = found.truth.busy_share(0, start, end) - found.truth.copied_share(0, start, end)
        assert shares.compute == pytest.approx(busy, abs=POINTS), shares
    parts = [shares.data_wait, shares.host_to_device, shares.compute, shares.launch, shares.sync]
    assert sum(filter(None, parts)) + (shares.other or 0.0) == pytest.approx(1.0)
