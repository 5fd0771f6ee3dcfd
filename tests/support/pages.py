"""Commands of a page of docs, run in a project as the page has it."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.processes import ran

ROOT = Path(__file__).resolve().parents[2]


def blocks(page: str, kinds: str, shorter: Mapping[str, str]) -> list[str]:
    """Blocks of code of these kinds, with the parts that take long shortened."""
    text = (ROOT / "docs" / page).read_text()
    found: list[str] = re.findall(rf"```(?:{kinds})\n(.*?)```", text, re.DOTALL)
    for long, short in shorter.items():
        assert any(long in each for each in found)
        found = [each.replace(long, short) for each in found]
    return found


def command_of(block: str) -> str:
    """Command of gpu-advisor in a block; else empty."""
    named = re.search(r"^gpu-advisor (\w+)", block, re.MULTILINE)
    return named[1] if named else ""


def run(found: list[str], project: Path, **more: str) -> Iterator[tuple[str, int, str, str]]:
    """Run blocks in `project`: each with its exit code, stdout and stderr."""
    tool = project.with_name("bin") / "gpu-advisor"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m advisor "$@"\n')
    tool.chmod(0o755)
    path = os.pathsep.join(map(str, (tool.parent, Path(sys.executable).parent)))
    environ = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    for block in found:
        done = ran("bash", "-euo", "pipefail", "-c", block, cwd=project, env=environ | more)
        yield block, done.returncode, done.stdout, done.stderr
