"""Messages between an engine and an agent: one JSON object a line.

    to the agent     {do: look | enter | scratch | run, ...}   requests, answered one by one
                     {cancel}                                  end the running trial
                     {stop: text}                              where all ranks of the job stop
    to the engine    {hello: {version, host}}                  first of all
                     {answer: {...}}                           or {problem, text, kind} in it
                     {progress: text}, {stop: text}
    both ways        {beat}                                    a sign of life each BEAT_S

Any command may carry the pipe: ssh, srun, docker exec, a worker of Ray. They mix words of their
own into it, so a line that is no JSON object says nothing and is no error. A carrier whose network
is gone may keep its pipe open for hours, so each side takes silence for the other's end: the
agent then ends its trial and leaves nothing behind, and the engine looks for another node.
"""

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from advisor.files import reading
from advisor.model import Trial

T = TypeVar("T")

BEAT_S = 5.0
"""Seconds between the lines that show each side lives.

Judgement: longer leaves too few of them within `SILENCE_S`, shorter wakes the node more often."""
SILENCE_S = 30.0
"""Silence after which a side is taken for dead: six beats.

Judgement: shorter takes a node that is busy for a lost one, longer waits for one that is gone."""
LARGEST_BYTES = 16 << 20
"""Larger files are compared by size alone.

Judgement: a file that large is hardly code, and both sides would read it whole."""


def encode(**fields: Any) -> bytes:
    """Encode a message; dataclasses become objects, bytes of configs text."""
    return json.dumps(fields, default=_plain).encode("ascii") + b"\n"


def _plain(value: Any) -> Any:
    return value.decode("utf-8") if isinstance(value, bytes) else dataclasses.asdict(value)


def decode(line: bytes) -> dict[str, Any]:
    """Decode a message; empty for other lines, such as a shell's greeting."""
    try:
        message = reading.from_json(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def read(kind: type[T], value: object) -> T:
    """Read a dataclass from its object. Raises pydantic's ValidationError."""
    return TypeAdapter(kind).validate_python(value)


def named_files(trial: Trial) -> dict[str, str]:
    """Files that command or candidate name, with digests here."""
    names = (*trial.command[1:], *(file.original for file in trial.files))
    digests = {name: digest(Path(trial.cwd, name)) for name in names}
    return {name: text for name, text in digests.items() if text}


def digest(path: Path) -> str:
    """Digest of a file, or a large one's size; empty if it is none, else why it is not readable."""
    try:
        if not path.is_file():
            return ""
        size = path.stat().st_size
        if size > LARGEST_BYTES:
            return str(size)
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as problem:
        return os.strerror(problem.errno or 0)
