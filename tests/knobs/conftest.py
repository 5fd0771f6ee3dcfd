"""Small documents of our own, written in the tests."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

from advisor import config as documents
from advisor import knobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.config import Document, Format
    from advisor.knobs import Findings


@pytest.fixture
def document() -> Callable[..., Document]:
    """A document from its text, YAML unless another format is named."""

    def build(text: str, form: Format = "yaml") -> Document:
        return documents.parse(textwrap.dedent(text).encode(), form, "config")

    return build


@pytest.fixture
def find(document: Callable[..., Document]) -> Callable[..., Findings]:
    """What is found in a text."""
    return lambda text, form="yaml": knobs.find(document(text, form))


@pytest.fixture
def kinds(find: Callable[..., Findings]) -> Callable[..., dict[str, str]]:
    """Path to kind of every knob in a text."""
    return lambda text, form="yaml": {k.path: k.kind for k in find(text, form).knobs}


@pytest.fixture
def has(kinds: Callable[..., dict[str, str]]) -> Callable[[str, str], bool]:
    """Whether a text has a knob of a kind."""
    return lambda text, kind: kind in kinds(text + "\n").values()
