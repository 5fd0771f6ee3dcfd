"""The event log is read as it grows, and whatever stands in it, reading it raises nothing."""

import json

import pytest

from advisor.analysis.events import PASS_ENDED, EventReader


def line(*events: object) -> bytes:
    return json.dumps(events).encode() + b"\n"


def test_a_log_is_read_as_it_grows() -> None:
    """A line that is not whole yet waits for its rest."""
    reader = EventReader()
    data = line(["batch", 1.0, 1.5, 0, 8], ["batch", 2.0, 2.1, 0, PASS_ENDED])
    reader.feed(data[:20])
    assert reader.log.fetches == []
    reader.feed(data[20:] + line(["step", 3, 4.0, 1], ["hooks", 4.0, True, False]))
    assert [fetch.ended_pass for fetch in reader.log.fetches] == [False, True]
    assert reader.log.updates[0].end == 4.0
    assert reader.log.counting_since == 4.0
    assert reader.log.unread == 0


@pytest.mark.parametrize(
    "event",
    [
        ["batch", 1.0, "2", 0, 8],
        ["batch", 1.0, 2.0, -1, 8],
        ["batch", 1.0, 2.0, 0],
        ["batch", 1.0, 2.0, True, 8],
        ["nothing of ours", 1.0],
        ["loader", 0, {"arguments": [1]}],
        ["numbers", 0, {"t": None}],
        ["clock", -1.0],
        ["clock", 1e15],
        ["save", 0.0, 1e200],
        ["loader", 0, {"pass_items": 10**400}],
        ["module", 0, {"tokens": 1e300}],
        {"batch": 1},
        "batch",
        [],
        None,
    ],
)
def test_an_event_that_does_not_fit_is_left_out(event) -> None:
    reader = EventReader()
    reader.feed(line(event, ["step", 1.0, 2.0, 1]))
    assert reader.log.unread == 1
    assert len(reader.log.updates) == 1


def test_the_numbers_of_a_tensor_may_be_of_any_size() -> None:
    """A mask has the least number of its type, and costs no other fact of the module."""
    reader = EventReader()
    reader.feed(line(["module", 0, {"parameters": 9, "inputs": [[-1.7e308, 1.0]]}]))
    assert reader.log.modules[0].parameters == 9


@pytest.mark.parametrize("data", [b"nothing\n", b'{"a": 1}\n', b"[[\n", b'[["step", NaN, 1, 1]]\n'])
def test_a_line_that_is_no_list_of_events_is_left_out(data) -> None:
    reader = EventReader()
    reader.feed(data + line(["step", 1.0, 2.0, 1]))
    assert reader.log.unread == 1
    assert len(reader.log.updates) == 1


def test_an_argument_of_a_dataloader_needs_no_field_of_its_own() -> None:
    reader = EventReader()
    reader.feed(line(["loader", 0, {"arguments": {"num_workers": 3, "in_order": False}}]))
    facts = reader.log.loader(0)
    assert facts.workers == 3
    assert facts.arguments["in_order"] is False
