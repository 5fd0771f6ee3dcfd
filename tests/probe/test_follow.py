"""Into processes that are started with an environment of their own, or not: then it is told."""

import os
import sys
from pathlib import Path

import pytest

from advisor.probe.env_propagation import carried, isolating
from tests.probe.program import WHOLE, run

CODE = "import subprocess, sys; subprocess.run([sys.executable, {}], env={{}})"


def test_a_cleared_environment_is_followed_into(tmp_path) -> None:
    """The other process is seen, and its temporary files are where those of the first are."""
    again = tmp_path / "again.py"
    again.write_text("import tempfile; open('made.txt', 'w').write(tempfile.gettempdir())\n")
    outcome = run(tmp_path, sys.executable, "-c", CODE.format(repr(str(again))), plan=WHOLE)
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
        ("env -i PATH=/bin python x.py", "-i"),
        ("env SEED=1 python -i x.py", None),
        ("/usr/bin/sudo python x.py", "sudo"),
    ],
)
def test_words_that_keep_the_probe_out(line, option) -> None:
    assert isolating(line.split()) == option


def test_the_variables_of_the_program_stay(monkeypatch) -> None:
    """They may be bytes; of those that the probe needs only the path is changed, once."""
    monkeypatch.setenv("TMPDIR", "/ours")
    env = carried({b"PYTHONPATH": b"/mine", "A": "b"})
    assert env["A"] == "b"
    assert env["TMPDIR"] == "/ours"
    assert env["PYTHONPATH"].split(os.pathsep)[1:] == ["/mine"]
    assert carried(env) == env
    assert carried({b"TMPDIR": b"/mine"})["TMPDIR"] == "/mine"
