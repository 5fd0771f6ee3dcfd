"""Commands that a test waits for."""

import subprocess
from typing import Any

Done = subprocess.CompletedProcess[str]


def ran(*command: str, check: bool = False, **how: Any) -> Done:
    """A command that has ended, with what it printed; `how` is that of subprocess.run."""
    return subprocess.run(command, capture_output=True, text=True, check=check, **how)
