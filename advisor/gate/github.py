"""GitHub Actions: outputs, job summary, annotations, and the guard around the program's output.

Everything here treats text that the measured program could have written as hostile: what goes to
the log is escaped, what goes to a file is delimited by a fresh random token, and while the
program runs no line of its output is taken for a workflow command.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from advisor.errors import OutputRefusedError
from advisor.files import atomic
from advisor.gate import environment, view

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, MutableMapping

    from advisor.gate.records import GateRecord

Level = Literal["notice", "warning", "error"]

SUMMARY_BYTES = 900 * 1024
"""GitHub drops a step's summary as a whole above 1 MiB."""

ANNOTATION_CHARS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The files through which a step tells GitHub about itself; None outside GitHub."""

    output: Path | None = None
    summary: Path | None = None
    steering: tuple[Path, ...] = ()
    """Every file that steers the steps to come, wherever it lies."""
    withheld: tuple[str, ...] = ()
    """Variables that base and head do not see: tokens and the like."""
    active: bool = False


def take(environ: MutableMapping[str, str] = os.environ, keep: Collection[str] = ()) -> Job:
    """What this step may write to; afterwards no child process can find it, nor any token.

    `keep` are names of variables that are not to be withheld.
    """
    names = environment.withheld(environ, keep)
    job = Job(
        output=_path(environ, "GITHUB_OUTPUT"),
        summary=_path(environ, "GITHUB_STEP_SUMMARY"),
        steering=tuple(Path(environ[name]) for name in names if name in environment.STEERING),
        withheld=tuple(name for name in names if name not in environment.STEERING),
        active=environ.get("GITHUB_ACTIONS") == "true",
    )
    for name in names:
        del environ[name]
    return job


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    return Path(environ[name]) if environ.get(name) else None


@contextlib.contextmanager
def no_commands(job: Job, stream: TextIO | None = None) -> Iterator[None]:
    """While inside, GitHub takes no line of the log for a workflow command."""
    if not job.active:
        yield
        return
    stream = stream or sys.stderr
    token = secrets.token_hex(16)
    stream.write(f"::stop-commands::{token}\n")
    stream.flush()
    try:
        yield
    finally:
        stream.write(f"\n::{token}::\n")
        stream.flush()


# --- what the step says -------------------------------------------------------------------


def outputs(record: GateRecord, report: Path) -> dict[str, str]:
    """The action's outputs; all of them are set on every path."""

    def figure(value: float | None) -> str:
        return "" if value is None else f"{value:.2f}"

    return {
        "verdict": record.verdict,
        "slowdown-pct": figure(record.slowdown_pct),
        "ci-low-pct": figure(record.ci_low_pct),
        "ci-high-pct": figure(record.ci_high_pct),
        "mde-pct": figure(record.mde_pct),
        "pairs": str(record.pairs),
        "discarded-pairs": str(record.discarded_pairs),
        "report-json": str(report.with_suffix(".json")),
        "report-md": str(report),
    }


def write_outputs(job: Job, values: Mapping[str, str]) -> None:
    """Append `values` to GITHUB_OUTPUT, each between fresh random delimiters.

    Raises OutputRefusedError.
    """
    if job.output is None:
        return
    lines = []
    for name, value in values.items():
        delimiter = f"gpu-advisor-{secrets.token_hex(16)}"
        lines.append(f"{name}<<{delimiter}\n{value}\n{delimiter}\n")
    _append(job.output, "".join(lines))


def write_summary(job: Job, markdown: str) -> None:
    """Append to the job summary; what would be too long is cut and said so.

    Raises OutputRefusedError.
    """
    if job.summary is not None:
        _append(job.summary, clipped(markdown, SUMMARY_BYTES) + "\n")


def _append(path: Path, text: str) -> None:
    try:
        atomic.append(path, text.encode(errors="replace"))
    except OSError as problem:
        reason = problem.strerror or problem
        msg = f"{path}, a file of this job, could not be written: {reason}."
        raise OutputRefusedError(msg) from problem


def clipped(markdown: str, limit: int) -> str:
    """At most `limit` bytes, cut between lines."""
    raw = markdown.encode()
    if len(raw) <= limit:
        return markdown
    note = "\n\nThis summary was too long and is cut here; the whole report is in the artifact.\n"
    kept = raw[: limit - len(note.encode())].decode(errors="ignore")
    return kept.rpartition("\n")[0] + note


def level(record: GateRecord, code: int) -> Level:
    """How loudly to tell: an error where the job fails, else what was asked for."""
    if code:
        return "error"
    undecided = record.verdict in {"inconclusive", "no-baseline"}
    wish = record.inputs.on_inconclusive if undecided else record.inputs.on_invalid
    quiet = record.verdict == "pass" or wish == "pass"
    return "notice" if quiet else "warning"


def annotation(record: GateRecord, loudness: Level) -> str:
    """The one line that marks the run."""
    title = _property(f"Throughput gate: {record.verdict}")
    figures = ""
    if record.slowdown_pct is not None:
        figures = f" Slowdown {record.slowdown_pct:.1f} %, {record.pairs} pairs."
    said = _message(view.reason(record)[:ANNOTATION_CHARS] + figures)
    return f"::{loudness} title={title}::{said}"


def harmless(text: str) -> str:
    """`text` for the log: no line of it is a workflow command, and none steers a terminal."""
    shown = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return _OLD_COMMAND.sub(r"\1 \2", _COMMAND.sub(r"\1\\\2", shown))


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_COMMAND = re.compile(r"^([^\S\n]*)(::)", re.MULTILINE)
"""`::error::`, at the beginning of a line."""
_OLD_COMMAND = re.compile(r"(#)(#\[)")
"""`##[error]`, anywhere."""


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
