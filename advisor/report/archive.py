"""Dated reports of a project's calls, in its state folder.

A call writes report.md over that of the call before. What was proven then stays here, and the
next report names it.
"""

import contextlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from advisor.errors import ReportError
from advisor.files import atomic
from advisor.report import view, writing
from advisor.report.schema import HistoryEntry, Report

FOLDER = "reports"
MOST_KEPT = 100
"""Reports of a project that are kept, some 100 KiB each; older ones are removed.

Judgement: 10 MiB a project. Fewer lose a report that somebody still compares with, more grow a
folder that nobody empties."""


def keep(state: Path, report: Report) -> Path | None:
    """Keep a dated copy of `report`, masked; None where the folder takes none."""
    folder = state / FOLDER
    stamp = re.sub(r"\D", "", report.created[:19])
    name = re.sub(r"\W+", "-", view.subject(report)).strip("-")[-60:]
    place = folder / f"{stamp}-{name}.json"
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True, mode=0o700)
        atomic.place(place, writing.dump(writing.masked(report)).encode(), 0o600)
        for old in _files(folder)[:-MOST_KEPT]:
            old.unlink(missing_ok=True)
        return place
    return None


def all_of(states: Iterable[Path]) -> list[tuple[Path, Report]]:
    """Kept reports, the oldest first; unreadable ones are left out."""
    records = []
    for place in sorted(
        (p for s in states for p in _files(s / FOLDER)), key=lambda p: p.name
    ):
        with contextlib.suppress(ReportError):
            records.append((place, writing.load(place)))
    return records


def history(kept: Sequence[tuple[Path, Report]], report: Report) -> list[HistoryEntry]:
    """Earlier calls for the same configs, or the same command, the newest first."""
    same = [(place, earlier) for place, earlier in kept if _is_same_call(earlier, report)]
    return [entry(place, earlier) for place, earlier in reversed(same)]


def _is_same_call(one: Report, other: Report) -> bool:
    """True for the same configs, whatever the command; without configs for the same command."""
    return one.config == other.config and bool(one.config or one.command == other.command)


def entry(place: Path, report: Report) -> HistoryEntry:
    """A kept report in one line: its gain, or what else came out."""
    gain = report.gain.text if report.gain and report.verdict == "improved" else ""
    written = "" if report.written or not gain else ", not written"
    said = f"{gain}{written}" or view.outcome(report).lower()
    return HistoryEntry(created=report.created, outcome=said, kept=str(place))


def _files(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(path for path in folder.iterdir() if path.suffix == ".json")
    return []
