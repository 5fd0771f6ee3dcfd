"""Readings of torch in the user's own interpreter."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from advisor.errors import UsageError
from advisor.probe import torch_info

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ASK_LIMIT_S = 120.0
"""A first import of torch from a cold network disk takes a minute."""
PYTHON = re.compile(r"(?:python|pypy)[\d.]*")


class TorchFacts(BaseModel):
    """Facts that an interpreter reported; None: it could not."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    python: str
    executable: str
    missing: str | None = None
    """Why torch could not be imported."""
    torch: str | None = None
    cuda: str | None = None
    """CUDA that torch was built with."""
    rocm: str | None = None
    available: bool | None = None
    warned: tuple[str, ...] = ()


class _Answer(BaseModel):
    torch_facts: TorchFacts


def ask_torch(
    python: str | None, command: Sequence[str], environ: Mapping[str, str]
) -> TorchFacts | str:
    """Read the torch of the user's interpreter, or the reason.

    It is that of `python`, else of `command`, else the first on PATH. Raises UsageError where
    `python` is no program.
    """
    program = asking(python, command, environ)
    if program is None:
        return f"which Python `{command[0]}` starts is not known; name it with --python"
    source = Path(torch_info.__file__).read_text(encoding="utf-8")
    try:
        done = subprocess.run(
            [program, "-c", source],
            env={**environ, "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=ASK_LIMIT_S,
        )
    except (subprocess.TimeoutExpired, OSError) as problem:
        return f"{program} gave no answer: {problem}"
    for line in reversed(done.stdout.splitlines()):
        with contextlib.suppress(ValueError):
            return _Answer.model_validate_json(line).torch_facts
    errors = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
    return f"{program} gave no answer: {errors[-1][:200]}"


def asking(python: str | None, command: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Interpreter of the command.

    None where the command starts another program, which may install something first.
    """
    path = environ.get("PATH")
    if python is not None:
        found = shutil.which(python, path=path)
        if found is None:
            msg = f"--python {python}: there is no such program. Give the path of an interpreter."
            raise UsageError(msg)
        return found
    if command:
        return command[0] if PYTHON.fullmatch(PurePath(command[0]).name) else None
    return shutil.which("python", path=path) or shutil.which("python3", path=path) or sys.executable
