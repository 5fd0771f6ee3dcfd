"""Which keys that a config lacks a DataLoader would be given."""

from __future__ import annotations

import pytest

from advisor.config import parse
from advisor.tuner.discovery import passed_on

CONFIG = parse(
    b'{"train": {"batch_size": 4, "pin_memory": true}, "test": {"batch_size": 1}, "lr": 4}',
    "json",
    "c",
)


@pytest.mark.parametrize(
    ("passed", "expected"),
    [
        ({}, set()),
        ({"batch_size": 4, "pin_memory": True}, {"train.batch_size", "train.pin_memory"}),
        ({"batch_size": 4, "pin_memory": 1}, set()),
        ({"batch_size": 4, "num_workers": 0}, set()),
        ({"batch_size": 1, "sampler": None}, {"test.batch_size"}),
        ({"batch_size": 2, "pin_memory": True}, set()),
    ],
    ids=["no mapping", "all of it", "another type", "a part", "and more", "another value"],
)
def test_a_mapping_is_passed_on_where_each_of_its_values_arrived(
    passed: dict[str, object], expected: set[str]
) -> None:
    """Every key, with its value; one that the program changed on the way is not the config's."""
    assert passed_on(CONFIG, passed) == expected  # type: ignore[arg-type]
