"""Options that nobody typed, read from the source of programs such as people have.

Every program here prints what it was told. It is asked with its own command and with the changed
one: what was read must be what it says by itself, and what was added must be what it hears.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from advisor import options
from advisor.config import of_command, split_command
from tests.options.programs import ARGPARSE, PROGRAMS, SUBCOMMANDS, Program, write

if TYPE_CHECKING:
    from pathlib import Path


def said_by(folder: Path, command: tuple[str, ...]) -> dict[str, Any]:
    """What the program was told, by itself."""
    words = (sys.executable, *command[1:])
    path = os.pathsep.join(p for p in sys.path if p.endswith("site-packages"))
    done = subprocess.run(
        words,
        cwd=folder,
        env={"PYTHONPATH": path, "PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("case", PROGRAMS)
def test_what_is_read_is_what_the_program_says_and_what_is_added_is_what_it_hears(
    tmp_path: Path, case: str
) -> None:
    program = PROGRAMS[case]
    if "click" in case:
        pytest.importorskip("click")
    write(tmp_path, program.files)
    command = tuple(shlex.split(program.command))
    document = of_command(command, options.of_command(command, tmp_path))

    found = {flag: document.scalars[flag].value for flag in program.defaults}
    assert found == program.defaults
    own = said_by(tmp_path, command)
    for flag, value in program.defaults.items():
        if not program.hears:
            assert heard(own, flag) == value

    tuned = split_command(document.with_values(program.set))
    hears = program.hears or {destination(flag): value for flag, value in program.set.items()}
    after = said_by(tmp_path, tuned)
    assert {name: after[name] for name in hears} == hears
    assert {n: v for n, v in after.items() if n not in hears} == {
        n: v for n, v in own.items() if n not in hears
    }
    left = iter(tuned)
    assert all(word in left for word in command if word not in added_over(document, program))


def added_over(document: Any, program: Program) -> set[str]:
    """Words of the command that a set value replaces."""
    typed = (document.scalars[flag] for flag in program.set)
    return {
        word for s in typed if s.default_of is None for word in (s.text, f"{s.path}={s.text}")
    } | {"-j2"}


def destination(flag: str) -> str:
    return flag.lstrip("-") if "." in flag else flag.lstrip("-").replace("-", "_")


def heard(said: dict[str, Any], flag: str) -> Any:
    return said[destination(flag)]


def test_each_default_says_where_it_is_written_and_what_it_is_for(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(ARGPARSE)
    command = ("python", "main.py")
    scalar = of_command(command, options.of_command(command, tmp_path)).scalars["--batch-size"]
    assert scalar.default_of == "main.py:5"
    assert scalar.comment == "input batch size for training (default: 64)"


def test_code_that_the_program_never_reaches_declares_nothing(tmp_path: Path) -> None:
    """A parser under another file's `__main__`, or in a function that nobody calls."""
    write(tmp_path, SUBCOMMANDS)
    found = options.of_command(("python", "main.py", "train"), tmp_path)
    assert "--unused-workers" not in {option.flag for option in found}
    assert "--test-batch" not in {option.flag for option in found}, "of another subcommand"


WITHOUT = {
    "a shell command": ("bash", "-c", "python main.py"),
    "a script that is not there": ("python", "gone.py"),
    "a program that is no Python": ("ls", "-l"),
    "an interpreter alone": ("python",),
    "a script that does not parse": ("python", "broken.py"),
    "nothing": (),
    "code that is longer than any name": ("python", "-c", "pass\n" * 2000),
    "a module": ("python", "-m", "json.tool"),
}


@pytest.mark.parametrize("case", WITHOUT)
def test_a_program_that_cannot_be_read_has_no_options_and_does_no_harm(
    tmp_path: Path, case: str
) -> None:
    (tmp_path / "main.py").write_text(ARGPARSE)
    (tmp_path / "broken.py").write_text("def (:\n")
    assert options.of_command(WITHOUT[case], tmp_path) == ()


def test_a_program_is_read_and_never_run_or_imported(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    ran = f"open({str(witness)!r}, 'w').close()\n"
    (tmp_path / "side.py").write_text(ran)
    (tmp_path / "main.py").write_text(f"{ran}import side\n{ARGPARSE}")
    assert options.of_command(("python", "main.py"), tmp_path)
    assert not witness.exists()


REFUSED = {
    "type=bool takes every text for true": "p.add_argument('--x', type=bool, default=True)",
    "several values": "p.add_argument('--x', type=int, nargs='+', default=3)",
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_option_that_cannot_be_set_to_one_value_says_why(tmp_path: Path, case: str) -> None:
    text = f"import argparse\np = argparse.ArgumentParser()\n{REFUSED[case]}\n"
    (tmp_path / "main.py").write_text(text)
    command = ("python", "main.py")
    scalar = of_command(command, options.of_command(command, tmp_path)).scalars["--x"]
    assert not scalar.editable
    assert scalar.why


def test_a_default_that_only_running_would_tell_is_none(tmp_path: Path) -> None:
    text = "import argparse, os\np = argparse.ArgumentParser()\n"
    text += "p.add_argument('--workers', type=int, default=os.cpu_count())\n"
    (tmp_path / "main.py").write_text(text)
    (option,) = options.of_command(("python", "main.py"), tmp_path)
    assert option.default is None
