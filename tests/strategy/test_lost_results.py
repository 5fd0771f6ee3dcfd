"""Results by item: what a batch leaves out or changes is told, rounding and chance are not."""

from __future__ import annotations

import pytest

from advisor.model import ResultFile, Run
from advisor.strategy import results
from tests.runs import a_run


def run(*files: ResultFile, units: float = 1000.0, step_kind: str = "loader batch") -> Run:
    """One that finished so many units and left `files`."""
    return a_run(units=units, whole_units=units, step_kind=step_kind, results=files)


def lines(items: int, *first: tuple[float | str, ...], path: str = "preds.jsonl") -> ResultFile:
    return ResultFile(path=path, items=items, size_bytes=100 * items, first=first)


HALF = ((0.5, "a"), (0.25, "b"))


@pytest.mark.parametrize(
    ("after", "stop"),
    [
        (run(lines(4000, *HALF), units=4000), None),
        (run(lines(3900, *HALF), units=4000), None),  # the rest lies in a buffer
        (run(lines(500, *HALF), units=4000), "fewer-items"),
        (run(lines(4000, (0.5004, "a"), (0.2501, "b")), units=4000), None),
        (run(lines(4000, (0.5, "a"), (0.75, "b")), units=4000), "other-items"),
        (run(lines(4000, (0.5, "a"), (0.25, "c")), units=4000), "other-items"),
        (run(lines(4000, (0.5, "a", 1.0)), units=4000), "other-items"),
        (run(lines(500, (9.0, "z")), units=4000, step_kind="optimizer step"), None),
        (run(units=4000), None),
        (run(lines(4000, *HALF, path="preds_1203.jsonl"), units=4000), None),
        (run(lines(500, *HALF, path="preds_1203.jsonl"), units=4000), "fewer-items"),
    ],
)
def test_fewer_or_other_items_stop_the_search(after: Run, stop: str | None) -> None:
    """By as many finished units as the candidate has; a training's files are no results."""
    before = run(lines(1000, *HALF))
    assert dict(results.lost((before, before), after)).get("stop") == stop


def test_what_two_originals_do_not_agree_on_tells_nothing() -> None:
    """A program that draws its results at random, or writes times into them."""
    one, other = run(lines(1000, (0.1, "a"))), run(lines(1000, (0.9, "b")))
    after = run(lines(1000, (0.4, "c")))
    assert results.lost((one, other), after) == ()
    assert results.lost((one,), after) == ()
    assert dict(results.lost((one, one), after))["stop"] == "other-items"
