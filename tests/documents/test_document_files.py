"""Bytes to the disk: all or nothing, through symlinks, with mode and owner."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from advisor.documents import read, write_atomic
from advisor.errors import (
    ConfigMissingError,
    ConfigReadOnlyError,
    ConfigUnreadableError,
    EditRefusedError,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_the_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"a: 1\n")
    write_atomic(path, b"a: 2\n", expected=b"a: 1\n")
    assert path.read_bytes() == b"a: 2\n"
    assert list(tmp_path.iterdir()) == [path]


def test_mode_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"a: 1\n")
    path.chmod(0o755)
    write_atomic(path, b"a: 2\n", expected=b"a: 1\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_owner_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"a: 1\n")
    os.chown(path, 12345, 23456)
    write_atomic(path, b"a: 2\n", expected=b"a: 1\n")
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 23456)


def test_a_symlink_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    target = tmp_path / "conf" / "real.yaml"
    target.write_bytes(b"a: 1\n")
    link = tmp_path / "link.yaml"
    link.symlink_to(target)
    write_atomic(link, b"a: 2\n", expected=b"a: 1\n")
    assert link.is_symlink()
    assert target.read_bytes() == b"a: 2\n"


def test_a_file_that_changed_meanwhile_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"a: 5\n")
    with pytest.raises(EditRefusedError, match="changed"):
        write_atomic(path, b"a: 2\n", expected=b"a: 1\n")
    assert path.read_bytes() == b"a: 5\n"


def test_a_read_only_file_is_not_written_even_by_root(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"a: 1\n")
    path.chmod(0o444)
    with pytest.raises(ConfigReadOnlyError, match="chmod u\\+w"):
        write_atomic(path, b"a: 2\n", expected=b"a: 1\n")
    assert path.read_bytes() == b"a: 1\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_or_failing_disk_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"a: 1\n")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigReadOnlyError, match="No space left"):
        write_atomic(path, b"a: 2\n", expected=b"a: 1\n")
    assert path.read_bytes() == b"a: 1\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigMissingError, match="not there"):
        write_atomic(tmp_path / "c.yaml", b"", expected=b"")


@pytest.mark.parametrize(
    ("name", "raw", "form"),
    [
        ("c.json", b'{"a": 1}', "json"),
        ("c.json", b'{"a": 1} // x', "jsonc"),
        ("c.jsonc", b'{"a": 1}', "jsonc"),
        ("c.YML", b"a: 1", "yaml"),
        ("c.toml", b"a = 1", "toml"),
        ("config", b'\n {"a": 1}', "json"),
        ("config.cfg", b"a: 1", "yaml"),
    ],
)
def test_the_format_is_told_by_name_else_by_content(
    tmp_path: Path, name: str, raw: bytes, form: str
) -> None:
    (tmp_path / name).write_bytes(raw)
    document = read(tmp_path / name)
    assert (document.format, document.data, document.path) == (form, {"a": 1}, tmp_path / name)


def test_a_text_that_holds_no_settings_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("just words\n")
    with pytest.raises(ConfigUnreadableError, match="holds no settings"):
        read(tmp_path / "notes.txt")
