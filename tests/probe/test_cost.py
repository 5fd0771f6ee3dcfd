"""What the probe does in each step, counted in steps of Python's interpreter: no clock is asked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from advisor.probe.resting import SPELL

from advisor import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from advisor.probe.session import Session

PROBE = str(Path(probe.__file__).parent)
EARLY, LATE = 280, 1200
"""Steps after which all that the probe does at first is done, and many more."""
WATCHED = 2 * (SPELL + 1)
"""Two rests, and the updates between them that are looked through."""


def steps(model: Any, batches: Iterator[Any]) -> Callable[[int], None]:
    """A training loop that goes on where it stood."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = torch.nn.CrossEntropyLoss()

    def run(many: int) -> None:
        for _ in range(many):
            x, y = next(batches)
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()

    return run


def forever() -> Iterator[tuple[Any, Any]]:
    while True:
        yield torch.zeros(4, 8), torch.zeros(4, dtype=torch.long)


def loaded() -> Iterator[Any]:
    data = torch.utils.data.TensorDataset(torch.zeros(2048, 8), torch.zeros(2048, dtype=torch.long))
    return iter(torch.utils.data.DataLoader(data, batch_size=1))


def opcodes(session: Session, run: Callable[[int], None]) -> float:
    """Opcodes of the probe's own code a step, over `WATCHED` steps.

    What it does by the second is put off: on a busy machine more of it falls into as many steps.
    """
    count = 0

    def inside(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        count += event == "opcode"
        return inside

    def called(frame: FrameType, _: str, __: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PROBE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return inside

    before = sys.gettrace()
    session.due = float("inf")
    sys.settrace(called)
    try:
        run(WATCHED)
    finally:
        sys.settrace(before)
        session.due = 0.0
    return count / WATCHED


@pytest.mark.parametrize(
    ("batches", "most"), [(forever, 130), (loaded, 165)], ids=["no loader", "loader"]
)
def test_a_step_costs_the_same_however_many_came_before(
    session: Session, batches: Callable[[], Iterator[Any]], most: int
) -> None:
    """An opcode takes some 25 ns on an idle core, and 80 where others empty its caches."""
    run = steps(torch.nn.Linear(8, 3), batches())
    run(EARLY)
    early = opcodes(session, run)
    run(LATE)
    late = opcodes(session, run)
    assert 0 < early < most
    assert late < 1.1 * early


class Picky(torch.nn.Linear):
    """A model that may be called by name, and that raises for a batch of one."""

    def forward(self, input: Any, *, scale: float = 1.0) -> Any:  # noqa: A002  torch's own name
        if len(input) == 1:
            raise NotImplementedError
        return scale * super().forward(input)


def test_a_call_unlike_the_others_is_counted_all_the_same(session: Session) -> None:
    """After a thousand calls of one kind nothing is looked at any more but the batch."""
    model = Picky(8, 3)
    steps(model, forever())(2 * EARLY)
    (root,) = (root for root in session.log.roots if root.parameters)
    assert root.place == (True, 0, 0)
    session.rest.wake(session.log)
    calls = session.log.count("forwards")
    model(torch.zeros(5, 8))
    model(input=torch.zeros(6, 8))
    model(torch.zeros(7, 8), scale=2.0)
    with pytest.raises(NotImplementedError):
        model(torch.zeros(1, 8))
    model(torch.zeros(3, 8))
    assert [entry[3] for entry in session.log.forwards[calls:]] == [5, 6, 7, 3]
    assert not model._forward_hooks
