"""Where a window's time went: what nests in something else counts once."""

from __future__ import annotations

import pytest
import torch
from advisor.probe.log import Log, Root
from advisor.probe.timeline import Host
from advisor.probe.timeline import shares as beside_device

from advisor.probe import steps, window

PLAIN = {"data_wait": 0.4, "compute": 0.5, "other": 0.1}


def log_of(shape: str, *, watch_every: int = 1) -> Log:
    """Sixty steps of 100 ms: 40 of loading, 25 of forward, 20 of backward, 5 of the update, and 10
    of what the program does beside; `shape`: what lies inside of the optimizer's step.

    The forwards of one batch in `watch_every` are seen.
    """
    log = Log()
    log.loaders = [{"workers": 0, "prefetch": None}]
    log.roots = [Root(torch.nn.Linear(1, 1), 0, 2)]
    for step in range(60):
        now, watched = 0.1 * step, not step % watch_every
        log.nexts.append((now, now + 0.04, 0, 4.0, watched))
        if watched:
            log.forwards.append((now + 0.04, now + 0.065, 0, 4.0, True))
        log.backwards.append((now + 0.065, now + 0.085, True))
        begin = {"nothing": 0.085, "passes": 0.04, "loading and passes": 0.0}[shape]
        log.opts.append((now + begin, now + 0.09, 1))
    return log


def shares_of(log: Log) -> tuple[dict[str, float], float | None]:
    """The shares, and what the headline says of waiting."""
    ledger = steps.read(log, {})
    assert ledger is not None
    found = window.Window(ledger, 10, 58)
    return window.shares(log, found), window.wait_share(log, found)


@pytest.mark.parametrize("watch_every", [1, 16])
@pytest.mark.parametrize("shape", ["nothing", "passes", "loading and passes"])
def test_what_nests_in_the_optimizers_step_counts_once(shape: str, watch_every: int) -> None:
    """`optimizer.step(closure)` spends the same time on the same things as the plain loop, however
    many of its forwards are seen."""
    shares, waits = shares_of(log_of(shape, watch_every=watch_every))
    assert shares == pytest.approx(PLAIN, abs=0.01)
    assert shares["data_wait"] == pytest.approx(waits)


def test_an_optimizer_in_another_counts_once() -> None:
    log = log_of("nothing")
    log.opts = [opt for begin, end, _ in log.opts for opt in ((begin, end, 1), (begin, end, 2))]
    assert shares_of(log)[0] == pytest.approx(PLAIN, abs=0.01)


def test_saving_after_a_validation_counts_once() -> None:
    """A validation lasts until the next batch is asked for; what is saved until then is saving."""
    log = log_of("nothing")
    log.loaders.append({"workers": 0, "prefetch": None})
    gap = log.nexts[30][0] - 0.01
    log.nexts.insert(30, (gap, gap + 0.001, 1, 4.0, True))
    log.saves.append((gap + 0.004, gap + 0.01))
    shares, _ = shares_of(log)
    whole = 4.8
    assert shares["saving"] == pytest.approx(0.006 / whole)
    assert shares["validation"] == pytest.approx(0.004 / whole)
    assert sum(shares.values()) == pytest.approx(1)


def test_on_a_device_the_optimizers_own_part_is_a_call_of_its_own() -> None:
    """A device that is behind after the update was not busy through the loading in its closure."""
    log = log_of("loading and passes")
    calls = window.calls_of(log, fetches=[entry[:2] for entry in log.nexts])
    marks = [(end, end + 0.006) for _, end, _ in log.opts]
    host = Host([entry[:2] for entry in log.nexts], calls, [], [])
    found = beside_device(host, marks, [(0.0, 6.0)])
    assert found["data_wait"] == pytest.approx(0.4, abs=0.01)
