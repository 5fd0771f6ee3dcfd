"""Results on stdout: one JSON object or text, without secrets."""

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, TextIO

from advisor import masking
from advisor.errors import FAILURE_EXIT_CODES
from advisor.model import Failure


def show(fields: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Print `fields` or `text`, with secrets masked."""
    if as_json:
        printed = json.dumps(masking.mask_value(fields), indent=2)
    else:
        printed = fitted(masking.mask_text(text.rstrip()), sys.stdout)
    sys.stdout.write(f"{printed}\n")


def fitted(text: str, stream: TextIO) -> str:
    """Text broken between words at a terminal's width; elsewhere as it is."""
    if not stream.isatty():
        return text
    wrapper = textwrap.TextWrapper(
        shutil.get_terminal_size().columns, break_long_words=False, break_on_hyphens=False
    )
    lines = []
    for line in text.split("\n"):
        wrapper.subsequent_indent = " " * (len(line) - len(line.lstrip()) + 2)
        lines += wrapper.wrap(line) or [""]
    return "\n".join(lines)


def table(rows: Sequence[Sequence[str]], indent: str = "") -> list[str]:
    """Lines of a table with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [(indent + "  ".join(map(str.ljust, row, widths))).rstrip() for row in rows]


def show_failure(failure: Failure, hint: str = "", *, as_json: bool) -> int:
    """Print failure, evidence and next step; return the exit code."""
    named = {name: getattr(failure, name) for name in ("kind", "evidence", "next_step")}
    tail = f"\n\nLast lines of the program:\n{failure.log_tail}" if failure.log_tail else ""
    text = f"Not measured: {failure.kind}. {failure.evidence}\n{failure.next_step}{tail}\n{hint}"
    show({"ok": False, "failure": named}, text, as_json=as_json)
    return FAILURE_EXIT_CODES[failure.kind]
