"""Commands of a test, ended or running, and a port for them."""

import socket
import subprocess
from typing import Any

Done = subprocess.CompletedProcess[str]


def ran(*command: str, check: bool = False, **how: Any) -> Done:
    """A command that has ended, with what it printed; `how` is that of subprocess.run."""
    return subprocess.run(command, capture_output=True, text=True, check=check, **how)


def begun(*command: str, **how: Any) -> subprocess.Popen[str]:
    """A command that runs, and can be read meanwhile; `how` is that of subprocess.Popen."""
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, **how)


def free_port() -> int:
    """As far as one can tell."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
