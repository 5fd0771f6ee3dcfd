"""What a trial leaves is removed, whatever it is, and never ends a call."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.executor.engines.scratch_dir import PREFIX, YOUNG_S, scratch_folder
from advisor.model import TrialFile
from advisor.runner.written_files import read_folder
from advisor.sandbox.layers import remove_tree

DEEP = 3000
"""Folders within each other: longer than any path (4,096), deeper than Python's stack."""


def deep(folder: Path, levels: int = DEEP) -> None:
    """Make folders within folders below `folder`, a file in each hundredth."""
    here = os.open(folder, os.O_RDONLY)
    for level in range(levels):
        os.mkdir("deeper", dir_fd=here)
        below = os.open("deeper", os.O_RDONLY, dir_fd=here)
        if level % 100 == 0:
            os.close(os.open("file", os.O_CREAT, dir_fd=below))
        os.close(here)
        here = below
    os.close(here)


@pytest.fixture(autouse=True)
def _leave_nothing_deep(tmp_path: Path) -> Iterator[None]:
    """Whoever removes the tests' own folders may not know trees so deep."""
    yield
    for path in tmp_path.iterdir():
        subprocess.run(["rm", "-rf", str(path)], check=True)


def test_a_tree_of_any_depth_is_removed(tmp_path) -> None:
    folder = tmp_path / "left"
    folder.mkdir()
    deep(folder)
    remove_tree(str(folder))
    assert not folder.exists()


def test_folders_that_deny_their_owner_are_removed(tmp_path) -> None:
    folder = tmp_path / "left"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").touch()
    for path, mode in ((folder / "a" / "b", 0o000), (folder / "a", 0o100), (folder, 0o400)):
        path.chmod(mode)
    remove_tree(str(folder))
    assert not folder.exists()


def test_no_link_is_followed(tmp_path) -> None:
    """Neither one in the tree nor one in its place."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file").touch()
    folder = tmp_path / "left"
    folder.mkdir()
    (folder / "link").symlink_to(mine)
    (tmp_path / "place").symlink_to(mine)
    remove_tree(str(folder))
    remove_tree(str(tmp_path / "place"))
    assert not folder.exists()
    assert (mine / "file").exists()


def test_what_cannot_be_removed_ends_nothing(tmp_path) -> None:
    """Such as a mount, a file of the kernel's, or nothing at all."""
    remove_tree("/proc/self/attr")
    remove_tree(str(tmp_path / "missing"))
    (tmp_path / "file").touch()
    remove_tree(str(tmp_path / "file"))


def test_a_call_after_one_that_left_a_deep_tree_works(tmp_path, monkeypatch) -> None:
    """The tree of a killed call is removed by the next one."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / f"{PREFIX}killed"
    left.mkdir()
    deep(left)
    old = time.time() - 2 * YOUNG_S
    os.utime(left, (old, old))
    with scratch_folder() as folder:
        deep(folder)
        assert not left.exists()
    assert list(tmp_path.iterdir()) == []


def test_deep_outputs_are_read_as_far_as_paths_go(tmp_path) -> None:
    deep(tmp_path)
    (tmp_path / "result.csv").write_text("1\n")
    _, found = read_folder(str(tmp_path))
    assert [each.path for each in found] == ["result.csv"]


def test_a_folder_in_the_place_of_a_candidate_is_removed(do, project) -> None:
    """Where writes are real a program may put anything there."""
    config = project / "c.json"
    config.write_text("{}")
    words = ("sh", "-c", 'rm "$0"; mkdir -p "$0/full/of"; echo done', str(config))
    file = TrialFile(original=str(config), content=b"[]")
    run = do.measured("guard", *words, files=(file,), allow_writes=True)
    assert run.stdout_tail == "done\n"
    assert sorted(path.name for path in project.iterdir()) == ["c.json", "mine.txt"]


@pytest.mark.parametrize("kind", ["overlay", "landlock"])
def test_a_trial_that_leaves_a_deep_tree_leaves_nothing(do, kind) -> None:
    """In its temporary folder, its outputs and the project."""
    code = (
        "import os, sys\n"
        "for place in (os.environ['TMPDIR'], '.'):\n"
        "    try: os.mkdir(place + '/top'); os.chdir(place + '/top')\n"
        "    except OSError: continue\n"
        f"    for _ in range({DEEP}): os.mkdir('d'); os.chdir('d')\n"
        "    os.chdir(os.environ['PWD'])\n"
    )
    run = do.measured(kind, code, env=(("PWD", str(do.project)),))
    assert run.isolation == kind
    scratch = do.folder / "scratch-0"
    assert not (scratch / "tmp").exists()
    assert not (do.folder / "scratch-0-layers").exists()
    assert not list(do.project.glob("top"))
    subprocess.run([sys.executable, "-c", ""], check=True, cwd=do.project)
