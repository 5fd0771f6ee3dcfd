"""Sentences for users are short: what a person reads beside a running program is read once."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_WORDS = 20
ENDS = re.compile(r"(?<=[.!?])\s+|\n")
CODE = re.compile(r"`[^`]*`")
PATTERN = re.compile(r"\(\?[:i]")
"""In a text that is a regular expression and no sentence."""


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Each text of a Python file that is no docstring, with its line; a value in it is one word."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in ast.walk(node) if part is not node}
            parts = (getattr(part, "value", "") for part in node.values)
            yield node.lineno, "".join(each if isinstance(each, str) else "X" for each in parts)
    for node in ast.walk(tree):
        if id(node) not in skipped and isinstance(node, ast.Constant):
            yield node.lineno, str(node.value)


def long_sentences(text: str) -> list[str]:
    """Sentences of more than MOST_WORDS words; what stands in backticks is one."""
    sentences = (CODE.sub("X", each) for each in ENDS.split(text))
    return [each for each in sentences if len(each.split()) > MOST_WORDS]


def test_no_sentence_that_a_user_reads_is_longer_than_twenty_words() -> None:
    """Messages, notes, reasons and help, as they stand in the code and in the templates."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {sentence}"
        for path in sorted((ROOT / "advisor").rglob("*.py"))
        for line, text in texts(path)
        if not PATTERN.search(text)
        for sentence in long_sentences(text)
    ]
    for template in sorted((ROOT / "templates").glob("*.md.j2")):
        layout = template.read_text(encoding="utf-8")
        plain = re.sub(r"{%.*?%}|{#.*?#}", "\n", layout, flags=re.DOTALL)
        found += [f"{template.name}: {each}" for each in long_sentences(plain)]
    assert not found, "\n".join(found)
