"""`gpu-advisor report report.json`: the report rendered again."""

import argparse
import sys
from pathlib import Path

from advisor.commands import invocation, output
from advisor.report import archive, view, writing
from advisor.settings import FILE_NAME
from advisor.state import existing_folders, project_root


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "report",
        type=Path,
        nargs="?",
        default=Path("report.json"),
        help="a report.json written by `optimize`, or its folder (default: report.json)",
    )
    parser.add_argument(
        "--html",
        action="store_true",
        help="one HTML page that needs no other file, in place of Markdown",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="PATH",
        help="where it goes (default: beside the JSON, with the suffix .md or .html)",
    )
    parser.add_argument(
        "--list", action="store_true", help="list the kept reports of this project's calls"
    )
    invocation.add_flags(parser, "--overwrite")


def record_of(named: Path) -> Path:
    """The report.json that is meant: itself, in a folder, or beside its rendered pages."""
    beside = named.with_suffix(".json")
    if named.is_dir():
        return named / "report.json"
    return beside if named.suffix in {".md", ".html"} and beside.exists() else named


def listed() -> str:
    """Kept reports of the project here, a line each, the oldest first."""
    states = existing_folders(project_root(Path.cwd() / FILE_NAME))
    rows = []
    for place, report in archive.all_of(states):
        entry = archive.entry(place, report)
        when = entry.created[:16].replace("T", " ")
        rows.append((when, view.subject(report), entry.outcome, entry.kept))
    if not rows:
        return "No report was kept here yet: `gpu-advisor optimize` writes one."
    return "\n".join(output.table(rows))


def run(args: argparse.Namespace, _command: list[str] | None) -> int:
    if args.list:
        sys.stdout.write(f"{listed()}\n")
        return 0
    args.report = record_of(args.report)
    place: Path = args.output or args.report.with_suffix(".html" if args.html else ".md")
    report = writing.load(args.report)
    claimed = writing.claim(
        place, page=args.html, like=args.report, overwrite=args.overwrite
    )
    if args.html:
        writing.write_page(report, place, claimed)
    else:
        writing.write(report, place, claimed)
    sys.stdout.write(f"{place}\n")
    return 0
