"""Small documents of our own, written in the tests."""

import textwrap

from advisor import config as documents, knobs
from advisor.config import Document
from advisor.config.document import Format
from advisor.knobs import Findings


def document(text: str, form: Format = "yaml") -> Document:
    """A document from its text."""
    return documents.parse(textwrap.dedent(text).encode(), form, "config")


def find(text: str, form: Format = "yaml") -> Findings:
    """What is found in a text."""
    return knobs.find(document(text, form))


def kinds(text: str, form: Format = "yaml") -> dict[str, str]:
    """Path to kind of every knob in a text."""
    return {knob.path: knob.kind for knob in find(text, form).knobs}
