"""The probe under every Python it is written for; a program without torch runs as ever."""

import functools
import shutil
import sys
from pathlib import Path

import pytest

from tests.probe.program import PROBE, WHOLE, run
from tests.support.processes import ran

VERSIONS = ("3.9", "3.11", "3.13")

PROGRAM = """
import argparse, json, sys, threading
parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=3)
parser.add_argument("words", nargs="*")
args = parser.parse_args()
print(json.dumps(vars(args), sort_keys=True), sys.flags.isolated, sorted(sys.path)[-1:])
thread = threading.Thread(target=print, args=("in a thread",))
thread.start(); thread.join()
with open("made.txt", "w") as file:
    file.write("made")
print("to stderr", file=sys.stderr)
sys.exit(args.width)
"""

PURE = """
import importlib, importlib.util, os, sys
folder = sys.argv[1]
package = importlib.util.spec_from_file_location(
    "_probe", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
module = importlib.util.module_from_spec(package)
sys.modules["_probe"] = module
package.loader.exec_module(module)
for name in sorted(os.listdir(folder)):
    if name.endswith(".py") and name != "__init__.py":
        importlib.import_module("_probe." + name[:-3])
from _probe import batches, recorder
log = recorder.Recorder(sys.argv[2], 1, 0.0)
for step in range(400):
    log.add(("step", float(step), step + 0.5, 1))
log.flush()
print(log.known_steps(), batches.ItemCount(3).count({"names": ["a", "b", "c"]}))
"""


@functools.cache
def interpreter(version: str) -> Path:
    """A Python of this version on the machine, that is not a shim of a version manager."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return Path(sys.executable)
    homes = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    found = [str(path) for path in homes[-1:]] or [shutil.which(f"python{version}")]
    for path in filter(None, found):
        done = ran(path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
        if done.stdout.strip() == version:
            return Path(path)
    pytest.skip(f"no Python {version} on this machine")


@pytest.fixture(params=VERSIONS)
def python(request: pytest.FixtureRequest) -> Path:
    return interpreter(request.param)


def test_a_program_without_torch_runs_as_ever(python, tmp_path) -> None:
    """Output, exit code and files are the same; the probe was there."""
    (tmp_path / "cwd").mkdir()
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [str(python), str(program), "--width", "4", "a", "b"]
    alone = ran(*command, cwd=tmp_path / "cwd")
    (tmp_path / "cwd" / "made.txt").unlink()
    outcome = run(tmp_path, *command, plan=WHOLE)
    assert outcome.exit_code == 4
    assert outcome.stdout == alone.stdout
    assert outcome.stderr == alone.stderr
    assert (tmp_path / "cwd" / "made.txt").read_text() == "made"
    (record,) = outcome.records
    assert record.errors == ()
    assert record.writes == (str(tmp_path / "cwd" / "made.txt"),)


def test_the_pure_parts_compute_the_same(python, tmp_path) -> None:
    """Every module of the probe can be imported, and a log written."""
    words = ("-W", "error", "-c", PURE, str(PROBE), str(tmp_path))
    done = ran(str(python), *words, cwd=tmp_path)
    assert [float(word) for word in done.stdout.split()] == [400, 3], done.stderr


def test_an_isolated_python_runs_as_ever(python, tmp_path) -> None:
    """It is not reached: no boot file tells the launcher so."""
    outcome = run(tmp_path, str(python), "-I", "-c", "print('here')", plan=WHOLE)
    assert outcome.stdout.strip() == "here"
    assert outcome.stderr == ""
    assert outcome.records == ()
