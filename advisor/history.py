"""Store of every run: one sqlite file in the project's state folder.

A key names all that a run depends on: sources, packages, command, values and plan; machines never
mix. A changed source or an upgraded package makes another key, so that nothing in here is ever
wrong, only unused: no run has to be deleted because the program has changed.
"""

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from advisor import clock, files, masking
from advisor.model import Failure, MeasurePlan, Run
from advisor.probe.recorder import VERSION

T = TypeVar("T")

SEEN_VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GPU_ADVISOR_SEED",
    "PYTHONHASHSEED", "PYTHONPATH", "LD_PRELOAD",
)  # fmt: skip
"""Caller's variables that make another measurement of a command."""
BUSY_S = 30
"""Longest wait in seconds while another call writes to the file; judgement."""

_RESULT: TypeAdapter[Run | Failure] = TypeAdapter(Run | Failure)

_SCHEMA = """
create table if not exists result (
  key text not null,
  machine text not null,
  created real not null,
  doc text not null
);
create index if not exists result_key on result (key, machine, created);
"""


def trial_key(
    program: str,
    command: tuple[str, ...],
    values: object,
    plan: MeasurePlan,
    env: Mapping[str, str],
) -> str:
    """Key of a measurement; on one machine equal keys are interchangeable."""
    seen = {name: os.environ[name] for name in SEEN_VARIABLES if name in os.environ}
    facts = [VERSION, program, list(command), values, asdict(plan), {**seen, **env}]
    return hashlib.sha256(
        json.dumps(facts, sort_keys=True, default=str).encode()
    ).hexdigest()[:24]


def program_key(cwd: Path, command: tuple[str, ...]) -> str:
    """Digest of the sources and packages of `command`: others make runs stale.

    Sources by size and time of their last change, since a project may hold a gigabyte of them.
    Files without `.py` are left out: programs write data and logs between their runs.
    """
    lines = installed_packages(command, cwd)
    for path in files.sources(cwd):
        with contextlib.suppress(OSError):  # gone meanwhile
            stat = path.stat()
            lines.append(f"{path.relative_to(cwd)}\0{stat.st_size}\0{stat.st_mtime_ns}")
    return hashlib.sha256(os.fsencode("\n".join(lines))).hexdigest()[:16]


def installed_packages(command: tuple[str, ...], cwd: Path) -> list[str]:
    """Interpreter and packages of `command`, by name and version; nothing is run."""
    lines: list[str] = []
    for word in dict.fromkeys(" ".join(command).split()):
        program = shutil.which(word) or (str(cwd / word) if "/" in word else None)
        if program is None:
            continue
        real = Path(os.path.realpath(program))
        for prefix in dict.fromkeys((Path(program).parent.parent, real.parent.parent)):
            if any(prefix.glob("lib/python3*")):
                lines.append(str(real))
            packages = sorted(prefix.glob("lib/python3*/*-packages/*-info"))
            lines += [f"{entry.parents[1].name}/{entry.name}" for entry in packages]
    return lines


class History:
    """Store of one project, without secrets, safe for several processes.

    Without a usable file, runs are known to this call only; `note` says so.
    """

    def __init__(self, path: Path, note: Callable[[str], None] = lambda _: None) -> None:
        self._path = path
        self._note = note
        self._memory: sqlite3.Connection | None = None
        """Stands in for an unusable file."""
        self._run(lambda db: db.executescript(_SCHEMA))

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in one transaction, in memory once the file fails."""
        if self._memory is None:
            try:
                with (
                    contextlib.closing(sqlite3.connect(self._path, timeout=BUSY_S)) as db,
                    db,
                ):
                    return work(db)
            except sqlite3.DatabaseError as problem:
                self._note(
                    f"{self._path} cannot be used ({problem}): runs of this call will not be "
                    "known to later calls. Move it away if it is damaged"
                )
            self._memory = sqlite3.connect(":memory:", check_same_thread=False)
            self._memory.executescript(_SCHEMA)
        with self._memory as db:
            return work(db)

    def append(self, key: str, machine: str, result: Run | Failure) -> None:
        doc = json.dumps(masking.mask_value(json.loads(_RESULT.dump_json(result))))
        row = (key, machine, clock.now(), doc)
        self._run(lambda db: db.execute("insert into result values (?, ?, ?, ?)", row))

    def find(
        self, key: str, machine: str, *, max_age_s: float, min_age_s: float = 0.0
    ) -> list[Run | Failure]:
        """Results of `key` on `machine`, newest first."""
        now = clock.now()
        rows = self._run(
            lambda db: db.execute(
                "select doc from result where key = ? and machine = ?"
                " and created > ? and created <= ? order by created desc, rowid desc",
                (key, machine, now - max_age_s, now - min_age_s),
            ).fetchall()
        )
        results: list[Run | Failure] = []
        for (doc,) in rows:
            with contextlib.suppress(ValidationError):
                results.append(_RESULT.validate_json(doc))
        return results
