"""When a process is counted, stopped or looked at."""

from dataclasses import replace

import pytest

from advisor.analysis.events import LoaderFacts
from advisor.analysis.progress import advise
from tests.analysis.logs import PLAN, infer, log_with


@pytest.mark.parametrize(("trains", "waits"), [(None, True), (False, False)])
def test_updates_are_waited_for_unless_it_is_known_that_none_come(trains, waits) -> None:
    """An evaluation builds an optimizer and a train loader, too, and uses neither."""
    log = log_with(loaders=2)
    log.loaders[0] = LoaderFacts(iterated=False)
    now = infer(log, 1000, start=0.0)
    advice = advise(log, replace(PLAN, trains=trains), now, optimizers_built=True)
    assert (advice.phase is None) is waits
