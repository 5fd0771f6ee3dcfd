"""A training whose updates are alike is looked through now and then: what is not seen is filled in,
and whatever is unlike the rest is seen."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from advisor.probe.log import EXHAUSTED, Log
from advisor.probe.resting import ALIKE, SPELL, filled

from advisor.probe import training

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from advisor.probe.ledger import Ledger

    from advisor.probe.session import Session

ROUND = SPELL + 1


def batches(many: int, size: int = 4) -> Iterator[Any]:
    """Of a loader of torch's; the last one of a pass is as large as the others."""
    data = torch.utils.data.TensorDataset(
        torch.zeros(many * size, 8), torch.zeros(many * size, dtype=torch.long)
    )
    return iter(torch.utils.data.DataLoader(data, batch_size=size))


def without_a_loader() -> Iterator[Any]:
    return itertools.repeat((torch.zeros(4, 8), torch.zeros(4, dtype=torch.long)))


class Program:
    """A training loop, update by update."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(8, 3)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def update(
        self,
        source: Iterator[Any],
        *,
        passes: int = 1,
        skipped: int = 0,
        before_pass: Callable[[], object] = int,
        after_pass: Callable[[], object] = int,
    ) -> None:
        for _ in range(skipped):
            next(source)
        self.optimizer.zero_grad()
        for _ in range(passes):
            x, y = next(source)
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
            before_pass()
            loss.backward()
        after_pass()
        self.optimizer.step()

    def run(self, source: Iterator[Any], updates: int) -> None:
        for _ in range(updates):
            self.update(source)


@pytest.mark.parametrize("source", [lambda: batches(4 * ALIKE), without_a_loader])
def test_an_update_that_is_not_looked_through_has_its_pass_all_the_same(
    session: Session, source: Callable[[], Iterator[Any]]
) -> None:
    """One in each update, after its batch and before the optimizer."""
    untouched = torch.autograd.backward.__wrapped__
    program, own, seen = Program(), source(), 0
    for _ in range(2 * ALIKE):
        program.update(own)
        seen += torch.autograd.backward is not untouched
    assert ALIKE < seen < ALIKE + 2 * (1 + ALIKE / ROUND) + 10
    log = session.log
    assert len(log.backwards) < len(log.opts) == 2 * ALIKE
    whole = filled(log)
    assert len(whole.backwards) == len(whole.opts) == 2 * ALIKE
    for (enter, end, _), (begin, done, _) in zip(whole.backwards, whole.opts, strict=True):
        assert enter <= end <= begin < done
    came = [entry[1] for entry in log.nexts or whole.forwards]
    assert all(fed <= enter for fed, (enter, *_) in zip(came, whole.backwards, strict=True))
    ledger = training.read(whole)
    assert ledger is not None
    assert (ledger.accumulation, ledger.batch) == (1, 4)
    assert sum(ledger.units) == 4 * (2 * ALIKE - 1)


@pytest.mark.parametrize("began", [0.75, 0.15], ids=["after its pass", "around its pass"])
def test_lengths_are_those_of_the_updates_that_were_seen(began: float) -> None:
    """Of a log of which three in four updates are taken away, all comes back as it was."""
    whole, noted = Log(), Log()
    for update in range(40):
        at = float(update)
        for log in (whole, noted):
            log.nexts.append((at, at + 0.1, 0, 4, False))
            log.forwards.append((at + 0.2, at + 0.4, 0, 4, True))
        whole.backwards.append((at + 0.4, at + 0.7, False))
        whole.opts.append((at + began, at + 0.95, 1))
        if update % 4:
            noted.opts.append((at + 0.95, at + 0.95, 1))
        else:
            noted.backwards.append(whole.backwards[-1])
            noted.opts.append(whole.opts[-1])
    back = filled(noted)
    for found, true in ((back.backwards, whole.backwards), (back.opts, whole.opts)):
        assert [each[:2] for each in found] == [pytest.approx(each[:2]) for each in true]
    assert filled(whole) is whole


def test_a_shorter_update_has_room_for_what_is_filled_in() -> None:
    """Nothing begins before the batch came, or before the update in front ended."""
    log = Log()
    log.nexts = [(0.0, 0.1, 0, 4, False), (1.0, 1.1, 0, 4, False)]
    log.backwards = [(0.4, 0.7, False)]
    log.opts = [(0.75, 0.95, 1), (1.3, 1.3, 1)]
    _, (enter, end, _) = filled(log).backwards
    _, (begin, done, _) = filled(log).opts
    assert 1.1 <= enter <= end <= begin < done == 1.3


def accumulating(program: Program, source: Iterator[Any], number: int) -> None:
    program.update(source, passes=2)


def skipping(program: Program, source: Iterator[Any], number: int) -> None:
    program.update(source, skipped=number % 3 == 0)


@pytest.mark.parametrize("update", [accumulating, skipping])
def test_updates_that_are_not_one_pass_of_as_many_batches_are_all_looked_through(
    session: Session, update: Callable[[Program, Iterator[Any], int], None]
) -> None:
    program, source = Program(), batches(8 * ALIKE)
    for number in range(2 * ALIKE):
        update(program, source, number)
        assert not session.rest.left
    assert filled(session.log) is session.log


def test_two_optimizers_in_turn_are_looked_through(session: Session) -> None:
    programs, source = (Program(), Program()), without_a_loader()
    for _ in range(2 * ALIKE):
        for program in programs:
            program.update(source)
            assert not session.rest.left


def test_the_end_of_a_pass_ends_the_rest(session: Session) -> None:
    """A validation may follow: its network's calls are seen from the first on."""
    program = Program()
    source = batches(ALIKE + ROUND // 2)
    with pytest.raises(StopIteration):
        program.run(source, 2 * ALIKE)
    assert session.log.nexts[-1][3] == EXHAUSTED
    assert not session.rest.left
    calls = session.log.count("forwards")
    for _ in range(3):
        program.model(torch.zeros(4, 8))
    assert session.log.count("forwards") == calls + 3


def evaluate(program: Program, calls: int, size: int = 4) -> None:
    with torch.no_grad():
        for _ in range(calls):
            program.model(torch.zeros(size, 8))


def read(session: Session) -> Ledger:
    ledger = training.read(filled(session.log))
    assert ledger is not None
    return ledger


def test_an_evaluation_without_a_loader_ends_the_rest(session: Session) -> None:
    """Its calls are seen from the first on, and it makes the updates no less alike."""
    program, source = Program(), without_a_loader()
    for _ in range(6):
        program.run(source, ALIKE // 2 + 3)
        evaluate(program, 5, size=7)
    assert [entry[3] for entry in session.log.forwards if not entry[4]] == 6 * 5 * [7]
    program.run(source, 10)
    assert session.rest.left
    ledger = read(session)
    assert len(ledger.marks) == 6
    assert set(ledger.units) == {4}


class CalledItsOwnWay(torch.nn.Linear):
    """Not as torch calls modules: its class cannot tell of it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs)


def test_where_no_class_tells_of_an_evaluation_every_update_is_looked_through(
    session: Session,
) -> None:
    program = Program()
    program.model = CalledItsOwnWay(8, 3)
    program.optimizer = torch.optim.SGD(program.model.parameters(), lr=0.01)
    program.run(without_a_loader(), 2 * ALIKE)
    assert not session.rest.left
    evaluate(program, 5)
    assert session.log.count("forwards") == 2 * ALIKE + 5


SOURCES = pytest.mark.parametrize("source", [lambda: batches(8 * ALIKE), without_a_loader])


@SOURCES
@pytest.mark.parametrize("when", ["before_pass", "after_pass"])
@pytest.mark.parametrize("loader", [False, True])
def test_a_validation_in_the_midst_of_an_update_takes_nothing_from_it(
    session: Session, source: Callable[[], Iterator[Any]], when: str, loader: bool
) -> None:
    """What came before it in that update was not looked through."""
    program, own = Program(), source()

    def validate() -> None:
        for x, _ in batches(3, size=7) if loader else [(torch.zeros(7, 8), None)]:
            with torch.no_grad():
                program.model(x)

    program.run(own, ALIKE + 10)
    for number in range(100):
        program.update(own, **{when: validate if number % 10 == 0 else int})  # type: ignore[arg-type]
    assert len(session.log.backwards) < ALIKE + 40
    assert read(session).units == (ALIKE + 109) * [4]


def test_items_of_calls_in_a_rest_are_seen(session: Session) -> None:
    """Spells of other batches that would lie between two updates that are looked through."""
    program, spells = Program(), 0
    for _ in range(4):
        program.run(without_a_loader(), ALIKE + SPELL)
        assert session.rest.left
        for _ in range(20):
            program.update(iter([(torch.zeros(2, 8), torch.zeros(2, dtype=torch.long))]))
        spells += 1
    assert sum(read(session).units) == spells * (4 * (ALIKE + SPELL) + 2 * 20) - 4


def test_an_update_of_more_batches_ends_the_rest(session: Session) -> None:
    """Else the batches would be told from skipped ones by nothing."""
    program, source = Program(), batches(8 * ALIKE)
    for _ in range(3):
        program.run(source, ALIKE + 10)
        assert session.rest.left
        for _ in range(30):
            program.update(source, passes=2)
    assert sum(read(session).units) == 4 * (3 * (ALIKE + 10 + 2 * 30) - 1)


def test_batches_joined_into_one_are_not_taken_for_skipped_ones(session: Session) -> None:
    """In spells, of which few are looked into."""
    program, source = Program(), batches(8 * ALIKE)
    for _ in range(3):
        program.run(source, ALIKE + 10)
        for _ in range(60):
            pairs = zip(next(source), next(source), strict=True)
            program.update(iter([tuple(torch.cat(pair) for pair in pairs)]))
    assert sum(read(session).units) == 4 * (3 * (ALIKE + 10 + 2 * 60) - 1)


def test_a_loader_that_a_process_was_forked_with_is_known_there(session: Session) -> None:
    program = Program()
    data = torch.utils.data.TensorDataset(torch.zeros(64, 8), torch.zeros(64, dtype=torch.long))
    torch.utils.data.DataLoader(data)
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    session.reset()
    program.run(iter(loader), 10)
    assert not session.errors
    assert (read(session).loader, len(session.log.loaders)) == (0, 1)


@SOURCES
def test_optimizers_that_follow_each_other_are_one(
    session: Session, source: Callable[[], Iterator[Any]]
) -> None:
    """Made anew for each epoch; the old one is gone, and its id may come back."""
    program, own = Program(), source()
    for _ in range(6):
        program.optimizer = torch.optim.SGD(program.model.parameters(), lr=0.01)
        program.run(own, ALIKE + 20)
        assert session.rest.left
    assert read(session).units == (6 * (ALIKE + 20) - 1) * [4]


def test_of_optimizers_in_turn_the_one_that_ends_the_round_tells_the_steps(
    session: Session,
) -> None:
    """Also where the run ended amid a round: a critic's two passes are no accumulation."""
    critic, generator, source = Program(), Program(), without_a_loader()
    for _ in range(20):
        critic.update(source, passes=2)
        generator.update(source)
        assert read(session).accumulation in {None, 1}
    critic.update(source, passes=2)
    assert read(session).accumulation == 1


@pytest.mark.parametrize("many", [2, 20, 40])
def test_batches_of_a_validation_are_none_of_the_training(session: Session, many: int) -> None:
    """A program that has a loader for its validation only, and may leave it early, is counted by
    its calls; one call after each may be missed."""
    program, source, validations = Program(), without_a_loader(), 3
    for _ in range(validations):
        with torch.no_grad():
            for x, _ in itertools.islice(batches(40, size=5), many):
                program.model(x)
        program.run(source, ALIKE + 10)
    assert session.rest.left
    ledger = read(session)
    assert ledger.loader is None
    assert ledger.batch == 4
    assert ledger.units.count(4) >= ledger.steps - validations


def test_a_second_network_that_only_answers_is_part_of_the_update(session: Session) -> None:
    """A teacher: called in each update, without gradients, and no evaluation."""
    program, teacher, source = Program(), Program(), without_a_loader()
    for _ in range(ALIKE + ROUND + 10):
        evaluate(teacher, 1)
        program.update(source)
    assert session.rest.left
    whole = filled(session.log)
    assert len(session.log.forwards) < len(whole.forwards) == 2 * len(whole.opts)
    assert [entry[4] for entry in whole.forwards] == len(whole.opts) * [False, True]
    assert set(read(session).units) == {4}


def test_updates_of_as_many_calls_but_other_items_are_all_looked_through(session: Session) -> None:
    """An epoch over tensors, without a loader: its last batch is smaller."""
    program, sizes = Program(), itertools.cycle([4] * 20 + [3])
    source = ((torch.zeros(n, 8), torch.zeros(n, dtype=torch.long)) for n in sizes)
    for _ in range(2 * ALIKE):
        program.update(source)
        assert not session.rest.left


def test_epochs_shorter_than_what_must_be_alike_are_alike_together(session: Session) -> None:
    """Each is followed by a validation with a loader of its own."""
    program = Program()
    for _ in range(6):
        with pytest.raises(StopIteration):
            program.run(batches(ALIKE // 4), ALIKE)
        with torch.no_grad():
            for x, _ in batches(3, size=5):
                program.model(x)
    program.run(batches(ALIKE // 4), 10)
    assert session.rest.left
    assert read(session).batch == 4


class Around(torch.nn.Module):
    """A network that holds one of a class that is called from outside as well."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner, self.head = inner, torch.nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            x = self.inner(x)
        return self.head(x)


def test_what_a_network_calls_without_gradients_is_no_call_from_outside(session: Session) -> None:
    """A frozen part of the class of the program's own network: a Linear, in both cases."""
    first = Program()
    first.run(without_a_loader(), ALIKE + 10)
    program = Program()
    program.model = Around(torch.nn.Linear(8, 3))  # type: ignore[assignment]
    program.optimizer = torch.optim.SGD(program.model.parameters(), lr=0.01)
    program.run(without_a_loader(), 4 * ALIKE)
    assert {root.name for root in session.log.roots if root.calls} == {"Linear", "Around"}
    around = [root.number for root in session.log.roots if root.name == "Around"]
    since = [
        entry for entry in filled(session.log).forwards if entry[0] > session.log.opts[ALIKE + 9][1]
    ]
    assert {entry[2] for entry in since[SPELL:]} == set(around)
    assert len(since) >= 4 * ALIKE - SPELL


def test_a_pass_within_a_call_ends_the_rest_after_it(session: Session) -> None:
    """Nobody could tell until then which calls come from outside."""
    program, source, calls = Program(), without_a_loader(), session.log.forwards
    program.run(source, ALIKE + 10)
    assert session.rest.left

    other = torch.nn.Bilinear(8, 8, 2)

    def look_up(*_: Any) -> None:
        for x, _ in batches(2):
            other(x, x)
        other(x, x)

    handle = program.model.register_forward_hook(look_up)
    before = len(calls)
    program.update(source)
    handle.remove()
    assert not session.rest.left
    assert len(calls) == before
    other(torch.zeros(4, 8), torch.zeros(4, 8))
    assert len(calls) == before + 1


def test_a_process_of_its_own_starts_over(session: Session) -> None:
    """After a fork nothing is known: what the child does is looked through from its first step."""
    program, source = Program(), without_a_loader()
    program.run(source, ALIKE + 10)
    assert session.rest.left
    session.reset()
    program.run(source, ALIKE // 2)
    assert not session.rest.left
    assert len(session.log.backwards) == len(session.log.opts) == ALIKE // 2


def test_another_number_of_passes_is_found_by_the_end_of_the_rest(session: Session) -> None:
    """A schedule of the accumulation: from then on all updates are looked through."""
    program, source = Program(), batches(8 * ALIKE)
    program.run(source, ALIKE + 10)
    assert session.rest.left
    for _ in range(ROUND):
        program.update(source, passes=2)
    for _ in range(2 * ROUND):
        program.update(source, passes=2)
        assert not session.rest.left


def test_what_the_program_put_in_place_of_backward_stays_there(session: Session) -> None:
    """Its own wrapper is not taken out with ours, which it calls."""
    program, source = Program(), without_a_loader()
    ours, calls = torch.autograd.backward, 0

    def own(*args: Any, **kwargs: Any) -> None:
        nonlocal calls
        calls += 1
        ours(*args, **kwargs)

    torch.autograd.backward = own
    try:
        program.run(source, ALIKE + 2 * ROUND)
        assert torch.autograd.backward is own
        assert calls == len(filled(session.log).backwards) == ALIKE + 2 * ROUND
    finally:
        torch.autograd.backward = ours
