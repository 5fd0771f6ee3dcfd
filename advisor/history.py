"""Every run, kept before anyone decides on it, and found again by what was run and where.

One sqlite file in the project's state folder; a run is one JSON document, so a later version can
read what an earlier one wrote, field by field. A key names the program's sources, the command, the
values in force and the plan; the machine's key stands beside it, and runs are never mixed across.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from advisor.model import Failure, MeasurePlan, Run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STATE_FOLDER = ".gpu-advisor"
FORMAT = 1  # 1: model.Run and model.Failure as of 0.1

_RUN = TypeAdapter(Run)
_FAILURE = TypeAdapter(Failure)

_SCHEMA = """
create table if not exists run (
  id integer primary key,
  key text not null,
  machine text not null,
  created real not null,
  format integer not null,
  outcome text not null,
  doc text not null
);
create index if not exists run_key on run (key, machine, created);
"""


def state_folder(root: Path) -> Path:
    """The git-ignored state folder of the project at `root`, made when missing."""
    folder = root / STATE_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    return folder


def trial_key(program: str, command: tuple[str, ...], values: object, plan: MeasurePlan) -> str:
    """Identity of a measurement: equal keys may stand in for each other on one machine."""
    facts = [FORMAT, program, list(command), values, asdict(plan)]
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:24]


def program_key(cwd: Path, *, most_files: int = 3000) -> str:
    """Digest over path, size and mtime of the Python sources below `cwd`.

    An edited source makes earlier runs stale. Environments and hidden folders are skipped, and
    past `most_files` the rest is left out, which can only make history less fresh than it says.
    """
    digest = hashlib.sha256()
    for count, path in enumerate(_sources(cwd)):
        if count >= most_files:
            break
        stat = path.stat()
        digest.update(f"{path.relative_to(cwd)}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _sources(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        if entry.is_dir():
            if (
                entry.name not in {"__pycache__", "node_modules"}
                and not (entry / "pyvenv.cfg").exists()
            ):
                yield from _sources(entry)
        elif entry.suffix == ".py":
            yield entry


class History:
    """The store of one project. Safe for several processes: sqlite's own locking, short writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._open() as db:
            db.executescript(_SCHEMA)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self._path, timeout=30)
        try:
            with db:
                yield db
        finally:
            db.close()

    def append(self, key: str, machine: str, result: Run | Failure) -> None:
        """Keep `result`."""
        ran = isinstance(result, Run)
        doc = _RUN.dump_json(result) if isinstance(result, Run) else _FAILURE.dump_json(result)
        row = (key, machine, time.time(), FORMAT, "ok" if ran else "failed", doc.decode())
        with self._open() as db:
            db.execute(
                "insert into run (key, machine, created, format, outcome, doc)"
                " values (?, ?, ?, ?, ?, ?)",
                row,
            )

    def find(self, key: str, machine: str, *, max_age_s: float) -> list[Run | Failure]:
        """Results of `key` on `machine`, newest first; documents of another format are skipped."""
        with self._open() as db:
            rows = db.execute(
                "select outcome, doc from run where key = ? and machine = ? and format = ?"
                " and created > ? order by created desc, id desc",
                (key, machine, FORMAT, time.time() - max_age_s),
            ).fetchall()
        found: list[Run | Failure] = []
        for outcome, doc in rows:
            try:
                result = (_RUN if outcome == "ok" else _FAILURE).validate_json(doc)
            except ValidationError:
                continue
            found.append(result)
        return found

    def host_spreads(self, machine: str, *, limit: int = 200) -> list[list[float]]:
        """Rates of equal trials on `machine`, grouped by key: what this host's noise looks like."""
        with self._open() as db:
            rows = db.execute(
                "select key, json_extract(doc, '$.units_per_s') from run"
                " where machine = ? and outcome = 'ok'"
                " and not coalesce(json_extract(doc, '$.disturbance.disturbed'), 0)"
                " order by created desc limit ?",
                (machine, limit),
            ).fetchall()
        groups: dict[str, list[float]] = {}
        for key, rate in rows:
            if rate:
                groups.setdefault(key, []).append(rate)
        return [rates for rates in groups.values() if len(rates) > 1]
