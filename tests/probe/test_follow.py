"""Into processes that are started with an environment of their own, or not: then it is told."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from advisor.probe.env_propagation import carried, isolating
from tests.probe.program import WHOLE, run

WAYS = {
    "exec": "os.execve(sys.executable, [sys.executable, *line], {})",
    "exec, bytes": "os.execve(sys.executable, [sys.executable, *line], {b'A': b'b'})",
    "run": "subprocess.run([sys.executable, *line], env={'PYTHONPATH': '/nowhere'})",
    "spawn": "os.waitpid(os.posix_spawn(sys.executable, [sys.executable, *line], {}), 0)",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_cleared_environment_is_followed_into(tmp_path: Path, way: str) -> None:
    """A program that starts itself again, or another one, with an environment of its own: it is
    seen, and its temporary files are where those of the others are."""
    again = tmp_path / "again.py"
    again.write_text("import tempfile; open('made.txt', 'w').write(tempfile.gettempdir())\n")
    code = f"import os, subprocess, sys; line = [{str(again)!r}]; {WAYS[way]}"
    outcome = run(tmp_path, sys.executable, "-c", code, plan=WHOLE)
    assert outcome.exit_code == 0, outcome.stderr
    made = str(tmp_path / "cwd" / "made.txt")
    assert made in [name for record in outcome.records for name in record.writes], outcome.records
    assert "gpu-advisor-test-" in Path(made).read_text()


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("python -I x.py", "-I"),
        ("/usr/bin/python3.11 -u -E x.py", "-E"),
        ("python3 -uS x.py", "-uS"),
        ("python -X importtime x.py", None),
        ("python -W error::I x.py", None),
        ("python -c I", None),
        ("python -m pkg -I", None),
        ("python x.py -I", None),
        ("bash -I", None),
    ],
)
def test_options_that_keep_the_probe_out(line: str, option: str | None) -> None:
    assert isolating(line.split()) == option


def test_what_is_there_already_is_left_as_it_is() -> None:
    """The program's own variables stay, whatever they are spelled in."""
    whole = carried({}, "/spec.json")
    assert carried(whole, "/spec.json") is whole
    other = carried({b"PYTHONPATH": b"/mine", "A": "b"}, "/spec.json")
    assert other["A"] == "b"
    assert other["PYTHONPATH"].split(os.pathsep)[1:] == ["/mine"]
    assert carried({b"TMPDIR": b"/mine"}, "/spec.json")[b"TMPDIR"] == b"/mine"
    assert "TMPDIR" not in carried({b"TMPDIR": b"/mine"}, "/spec.json")
