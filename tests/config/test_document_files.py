"""Bytes to the disk: all or nothing, through symlinks, with mode and owner."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from advisor.config import read, swap as swapping, write_atomic
from advisor.errors import (
    ConfigMissingError,
    ConfigReadOnlyError,
    ConfigUnreadableError,
    EditRefusedError,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A config of one value."""
    config = tmp_path / "c.yaml"
    config.write_bytes(b"a: 1\n")
    return config


def test_the_file_is_replaced_with_its_mode_owner_and_attributes(tmp_path) -> None:
    path = tmp_path / ("c" * 250 + ".yaml")
    path.write_bytes(b"a: 1\n")
    path.chmod(0o755)
    marked = False
    with contextlib.suppress(OSError):  # a file system without extended attributes
        os.setxattr(path, "user.mine", b"1")
        marked = True
    if os.geteuid() == 0:
        os.chown(path, 12345, 23456)
    before = path.stat()
    write_atomic(path, b"a: 2\n", expected=b"a: 1\n")
    after = path.stat()
    assert path.read_bytes() == b"a: 2\n"
    assert after.st_mode == before.st_mode
    assert after.st_uid == before.st_uid
    assert after.st_gid == before.st_gid
    assert not marked or os.getxattr(path, "user.mine") == b"1"
    assert list(tmp_path.iterdir()) == [path]


def test_a_symlink_stays_and_its_target_is_written(path) -> None:
    link = path.with_name("link.yaml")
    link.symlink_to(path)
    write_atomic(link, b"a: 2\n", expected=b"a: 1\n")
    assert link.is_symlink()
    assert path.read_bytes() == b"a: 2\n"


def test_a_read_only_file_is_not_written_even_by_root(path) -> None:
    path.chmod(0o444)
    with pytest.raises(ConfigReadOnlyError, match="chmod u\\+w"):
        write_atomic(path, b"a: 2\n", expected=b"a: 1\n")
    assert path.read_bytes() == b"a: 1\n"
    assert list(path.parent.iterdir()) == [path]


def test_a_file_of_two_names_is_not_parted_from_the_other(path) -> None:
    """The second name would keep the old settings without a word."""
    path.with_name("second.yaml").hardlink_to(path)
    with pytest.raises(ConfigReadOnlyError, match="2 names"):
        write_atomic(path, b"a: 2\n", expected=b"a: 1\n")
    assert path.samefile(path.with_name("second.yaml"))
    assert path.read_bytes() == b"a: 1\n"


def save_in_between(monkeypatch: pytest.MonkeyPatch, save: Callable[[], None]) -> None:
    """`save` just before our file and the user's change places: after our last look."""
    plain = swapping.exchange
    saves = [save]

    def exchange(one: Path, other: Path) -> bool:
        if saves:
            saves.pop()()
        return plain(one, other)

    monkeypatch.setattr(swapping, "exchange", exchange)


def renamed_over(path: Path) -> None:
    (path.parent / "theirs").write_bytes(b"a: 3\n")
    (path.parent / "theirs").replace(path)


def written_into(path: Path) -> None:
    path.write_bytes(b"a: 3\n")


@pytest.mark.parametrize("save", [renamed_over, written_into])
def test_what_somebody_saved_under_our_rename_comes_back(path, monkeypatch, save) -> None:
    save_in_between(monkeypatch, lambda: save(path))
    with pytest.raises(EditRefusedError, match="changed by someone else"):
        write_atomic(path, b"a: 2\n", expected=b"a: 1\n")
    assert path.read_bytes() == b"a: 3\n"
    assert list(path.parent.iterdir()) == [path]


def test_what_an_editor_is_about_to_write_is_not_lost(path, monkeypatch) -> None:
    """It opened the file before the rename and writes after it: into the file it opened."""
    held: list[BinaryIO] = []
    save_in_between(monkeypatch, lambda: held.append(path.open("r+b")))
    with pytest.raises(EditRefusedError):
        write_atomic(path, b"a: 2\n", expected=b"a: 1\n")
    held[0].write(b"a: 3\n")
    held[0].close()
    assert path.read_bytes() == b"a: 3\n"


def test_a_config_that_is_removed_meanwhile_is_not_made_again(path, monkeypatch) -> None:
    save_in_between(monkeypatch, path.unlink)
    with pytest.raises(ConfigReadOnlyError, match="No such file"):
        write_atomic(path, b"a: 2\n", expected=b"a: 1\n")
    assert list(path.parent.iterdir()) == []


def test_where_files_cannot_change_places_a_rename_does_it(path, monkeypatch) -> None:
    monkeypatch.setattr(swapping, "exchange", lambda *_: False)
    write_atomic(path, b"a: 2\n", expected=b"a: 1\n")
    assert path.read_bytes() == b"a: 2\n"
    assert list(path.parent.iterdir()) == [path]


def test_an_edit_that_a_killed_call_had_taken_out_is_kept_beside(path, monkeypatch) -> None:
    """The worst moment: the user's version lies under our name, and nobody is there any more."""
    other = path.with_name("d.yaml")
    other.write_bytes(b"a: 1\n")
    save_in_between(monkeypatch, lambda: renamed_over(path))
    child = os.fork()
    if not child:
        monkeypatch.setattr(swapping, "_came_out", lambda *_: os.kill(os.getpid(), 9))
        write_atomic(path, b"a: 2\n", expected=b"a: 1\n")
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 9
    assert swapping.recover(other) == []
    (note,) = swapping.recover(path)
    (rescued,) = path.parent.glob("c.yaml.rescued-*")
    assert path.read_bytes() == b"a: 2\n"
    assert rescued.read_bytes() == b"a: 3\n"
    assert str(rescued) in note
    assert {each.name for each in path.parent.iterdir()} == {"c.yaml", "d.yaml", rescued.name}


def test_a_file_that_is_gone_is_said_to_be(tmp_path) -> None:
    with pytest.raises(ConfigMissingError, match="not there"):
        write_atomic(tmp_path / "c.yaml", b"", expected=b"")


def test_the_suffix_names_the_format(tmp_path) -> None:
    known = {
        "c.json": b'{"a": 1} // x',
        "c.jsonc": b'{"a": 1}',
        "c.YML": b"a: 1",
        "c.toml": b"a = 1",
    }
    for name, raw in known.items():
        (tmp_path / name).write_bytes(raw)
        assert read(tmp_path / name).scalars["a"].value == 1
    (tmp_path / "notes.txt").write_text("just words\n")
    with pytest.raises(ConfigUnreadableError, match=r"ends in none of \.json"):
        read(tmp_path / "notes.txt")
