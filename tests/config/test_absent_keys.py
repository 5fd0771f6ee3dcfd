"""Keys that a document does not have are scalars without text, and a value set there is added."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.config import parse
from advisor.errors import EditRefusedError
from advisor.knobs.default_arguments import with_absent

JSON = b'{\n  "loader": {\n    "batch_size": 4, // each\n    "num_workers": 0\n  },\n  "lr": 1\n}\n'
YAML = b"loader:\r\n  batch_size : 4   # each\r\n  num_workers: 0\r\nlr: 1\r\n"
TOML = b"[loader]\nbatch_size = 4\nnum_workers = 0\n"
PYTHON = b"loader = dict(batch_size=4, num_workers=0)\n"


ADDED = {
    "json": (JSON, b'    "prefetch_factor": 4,\n    "pin_memory": true\n  },'),
    "yaml": (YAML, b"\r\n  num_workers: 2\r\n  prefetch_factor: 4\r\n  pin_memory: true\r\n"),
    "toml": (TOML, b"num_workers = 2\nprefetch_factor = 4\npin_memory = true\n"),
    "python": (PYTHON, b"4, num_workers=2, prefetch_factor=4, pin_memory=True)\n"),
}
"""Text of a format, and what it holds once the keys are there."""


@pytest.mark.parametrize("form", ADDED)
def test_a_value_of_an_absent_key_is_added_in_the_files_style(form: Any) -> None:
    """Behind the last of its mapping, in order; a default is not written, the rest stays."""
    raw, added = ADDED[form]
    document = with_absent(parse(raw, form, "c"))
    values = {
        "loader.num_workers": 2,
        "loader.prefetch_factor": 4,
        "loader.persistent_workers": False,
        "loader.pin_memory": True,
    }
    assert document.scalars["loader.pin_memory"].value is False
    assert added in document.with_values(values)
    assert document.with_values({"loader.pin_memory": False}) == raw
    assert document.takes("loader.pin_memory", True)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"data": {"batch_size": 4, "num_workers": 0, "folder": "x"}}',
        b'{"data": {"batch_size": 4, "more": {"x": 0}}}',
        b'{"a": {"shuffle": true}}',
        b'{"args": [4, 0]}',
    ],
)
def test_only_whole_mappings_of_loader_arguments_may_get_more(raw: bytes) -> None:
    """One that holds anything else is no DataLoader's, and is not passed on as it stands."""
    document = with_absent(parse(raw, "json", "c"))
    assert document.absent == ()
    with pytest.raises(EditRefusedError):
        document.with_values({"data.pin_memory": True})
