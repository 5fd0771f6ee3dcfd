"""`gpu-advisor report report.json`: render report.md and its figures again, measuring nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.report import writing

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `gpu-advisor report`."""
    parser.add_argument("report", type=Path, help="a report.json written by `optimize`")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="PATH",
        help="where the Markdown goes (default: beside the JSON, with the suffix .md)",
    )


def run(args: argparse.Namespace, command: list[str] | None) -> int:
    """Re-render. Raises ReportError when the JSON is missing, malformed or of another version."""
    del command
    output: Path = args.output or args.report.with_suffix(".md")
    writing.write(writing.load(args.report), output)
    sys.stdout.write(f"{output}\n")
    return 0
