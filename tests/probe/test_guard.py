"""The user's existing files are not written over."""

import time
from pathlib import Path

import pytest

from tests.probe.program import WHOLE, ProbedRun, forked, fresh, python

WRITE = "Path(target).write_text('lost')"
SAVE = "import torch; torch.save({'weights': torch.zeros(2)}, target)"
OPEN = "open(target, 'w')"
WAYS = {
    "open": OPEN,
    "append": "open(target, 'a')",
    "os.open": "os.open(target, os.O_WRONLY)",
    "replace": "os.replace('new.txt', target)",
    "remove": "os.remove(target)",
    "rmtree": "shutil.rmtree(os.path.dirname(os.path.abspath(target)))",
    "rename away": "os.rename(target, 'moved')",
    "rename folder": "os.rename(os.path.dirname(os.path.abspath(target)), '../moved')",
    "touch, then write": f"Path(target).touch(); {WRITE}",
    "chmod, then write": f"os.chmod(target, 0o666); {WRITE}",
    "link, then write": "os.link(target, 'link'); Path('link').write_text('lost')",
    "sqlite3": "sqlite3.connect(target)",
    "torch.save": SAVE,
}
THREAD = """
import threading
judged, real_stat = threading.Event(), os.stat

def slow_stat(*args, **options):  # holds the first thread inside the guard until the second wrote
    if threading.current_thread() is threading.main_thread() and not judged.is_set():
        second.start()
        judged.wait(5.0)
    return real_stat(*args, **options)

def overwrite():
    Path(target).write_text('lost')
    judged.set()

second = threading.Thread(target=overwrite)
os.stat = slow_stat
open('other.txt', 'w')
"""


def saves(folder: Path, code: str, target: str, *, allow_writes: bool = False) -> ProbedRun:
    """The program that does one thing to `target`."""
    return python(
        folder, "ok_saves.py", code, target, plan=WHOLE, allow_writes=allow_writes,
        begin=forked if code == SAVE else fresh,
    )  # fmt: skip


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A file of the user's in the command's working directory."""
    path = tmp_path / "cwd" / "mine.txt"
    path.parent.mkdir()
    path.write_text("precious")
    time.sleep(0.02)
    return path


@pytest.mark.parametrize("how", WAYS)
def test_every_way_to_lose_a_file_is_refused(tmp_path, mine, how) -> None:
    """The process leaves with 97 before the file is touched, and the record names it."""
    outcome = saves(tmp_path, WAYS[how], "mine.txt")
    assert outcome.exit_code == 97
    assert mine.read_text() == "precious"
    (record,) = outcome.records
    moved = how in {"rmtree", "rename folder"}
    assert record.guard == str(mine.parent if moved else mine)
    assert record.writes == (str(mine.parent / "new.txt"),)


def test_a_second_thread_is_judged_while_the_first_is(tmp_path, mine) -> None:
    """A write that begins while another is being judged is refused too."""
    outcome = saves(tmp_path, THREAD, "mine.txt")
    assert outcome.exit_code == 97
    assert mine.read_text() == "precious"


@pytest.mark.parametrize("name", [".git", ".cache"])
def test_hidden_folders_hold_files_of_the_user(tmp_path, mine, name) -> None:
    """Only folders that a tool fills again by itself may be written over."""
    hidden = mine.parent / name / "HEAD"
    hidden.parent.mkdir()
    hidden.write_text("precious")
    time.sleep(0.02)
    assert saves(tmp_path, OPEN, str(hidden)).exit_code == 97
    assert hidden.read_text() == "precious"


@pytest.mark.parametrize("name", ["__pycache__", ".mypy_cache", ".pytest_cache"])
def test_what_is_filled_again_may_be_written_over(tmp_path, mine, name) -> None:
    old = mine.parent / name / "a" / "file"
    old.parent.mkdir(parents=True)
    old.write_text("old")
    time.sleep(0.02)
    assert saves(tmp_path, WRITE, str(old)).stdout.strip() == "done"
    assert old.read_text() == "lost"


BY_THE_SHELL = "import subprocess; subprocess.run('echo lost > ' + target, shell=True, check=True)"


def test_a_program_in_a_shell_is_not_seen(tmp_path, mine) -> None:
    """Nor are its new files listed."""
    outcome = saves(tmp_path, f"{BY_THE_SHELL}; os.system('echo new > made.txt')", "mine.txt")
    assert outcome.stdout.strip() == "done"
    assert mine.read_text() == "lost\n"
    assert outcome.records[0].writes == (str(mine.parent / "new.txt"),)
    assert outcome.records[0].altered == ()


FROM_C = """
def {name}(*arguments):
    import ctypes
    ctypes.CDLL(None).truncate(arguments[{place}].encode(), 0)
"""
"""Stands for a function of a library that may not be installed, and writes as that does."""


@pytest.mark.parametrize(
    ("module", "function", "place"),
    [
        ("safetensors.torch", "save_file", 1),
        ("safetensors.numpy", "save_file", 1),
        ("cv2", "imwrite", 0),
        ("torchaudio", "save", 0),
    ],
)
def test_savers_that_write_from_c_are_watched(tmp_path, mine, module, function, place) -> None:
    folder = tmp_path / "library"
    file = folder / f"{module.replace('.', '/')}.py"
    file.parent.mkdir(parents=True)
    for package in {file.parent, folder / module.partition(".")[0]} - {folder}:
        if package.is_dir():
            (package / "__init__.py").touch()
    file.write_text(FROM_C.format(name=function, place=place))
    arguments = "target, None" if place == 0 else "None, target"
    code = f"sys.path.insert(0, {str(folder)!r}); import {module}; {module}.{function}({arguments})"
    assert saves(tmp_path, code, "mine.txt").exit_code == 97
    assert mine.read_text() == "precious"


def test_the_user_may_allow_it(tmp_path, mine) -> None:
    """Then the file is listed."""
    outcome = saves(tmp_path, SAVE, "mine.txt", allow_writes=True)
    assert outcome.stdout.strip() == "done"
    assert str(mine) in outcome.records[0].altered


def test_reading_and_new_files_are_free(tmp_path, mine) -> None:
    """The program's own new files may be opened again, and an event of its own breaks nothing."""
    reads = "open(target); sqlite3.connect(f'file:{target}?mode=ro', uri=True)"
    outcome = saves(tmp_path, f"{reads}; sys.audit('open', target)", "mine.txt")
    assert outcome.stdout.strip() == "done"
    assert outcome.records[0].guard is None


def test_files_elsewhere_are_not_ours_to_guard(tmp_path, mine) -> None:
    """Only what lies below the protected directory is."""
    other = tmp_path / "other.txt"
    other.write_text("old")
    outcome = saves(tmp_path, OPEN, str(other))
    assert outcome.stdout.strip() == "done"
