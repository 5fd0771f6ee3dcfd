"""Hostile and broken input: one clear error, at once; nothing run, nothing written."""

import os
import socket
import sys
from itertools import pairwise

import pytest

from advisor.config import parse, read
from advisor.config.swap import MAX_BYTES
from advisor.errors import ConfigMissingError, ConfigSyntaxError, ConfigUnreadableError
from tests.support.processes import ran

SPACE = MAX_BYTES - 100
LAUGHS = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n".encode()
    for before, name in pairwise("abcdefghij")
)


def test_aliases_are_never_unfolded() -> None:
    """A billion values in writing stay the nine that are written out."""
    assert len(parse(LAUGHS, "yaml", "x").scalars) == 9


@pytest.mark.parametrize(
    ("form", "raw", "error", "problem"),
    [
        ("yaml", b"a: caf\xe9\n", ConfigUnreadableError, "byte 0xe9 at offset 6"),
        ("json", b'\xef\xbb\xbf{"a": "\xe9"}', ConfigUnreadableError, "at offset 10"),
        ("yaml", "a: 1".encode("utf-16"), ConfigUnreadableError, "not UTF-8"),
        ("json", b"[" * 1000 + b"]" * 1000, ConfigSyntaxError, "more than 200 levels"),
        ("yaml", b"[" * 1000 + b"]" * 1000, ConfigSyntaxError, "more than 200 levels"),
        ("yaml", b"- " * 1000 + b"a", ConfigSyntaxError, "more than 200 levels"),
        ("toml", b"a = " + b"[" * 1000 + b"]" * 1000, ConfigSyntaxError, "200 levels"),
        ("yaml", b"- 1\n" * 60_000, ConfigUnreadableError, "50,000 values"),
        ("toml", b"a = [" + b"1," * 60_000 + b"1]", ConfigUnreadableError, "50,000"),
        ("yaml", b"a: " + b"9" * 10_000, ConfigSyntaxError, "4300 digits"),
        ("json", b'{"a": ' + b"9" * 10_000 + b"}", ConfigSyntaxError, "4300 digits"),
        ("json", b'{"a": "' + b"x" * SPACE, ConfigSyntaxError, "Unterminated string"),
        ("yaml", b'a: "' + b"x" * SPACE, ConfigSyntaxError, "unexpected end of stream"),
        ("yaml", b"a: \0", ConfigSyntaxError, "control characters"),
        ("python", b"a = = 1\n", ConfigSyntaxError, "line 1, column 5"),
        ("python", b"a = 1\0", ConfigSyntaxError, "NUL"),
        ("python", b"a = " + b"(" * 500 + b"1" + b")" * 500, ConfigSyntaxError, "nested"),
        ("python", b"a = " + b"-" * 100_000 + b"1", ConfigSyntaxError, "nested"),
        ("python", b"a = [" + b"1," * 60_000 + b"]", ConfigUnreadableError, "values"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_hostile_text_is_refused_in_one_sentence(form, raw, error, problem) -> None:
    with pytest.raises(error) as caught:
        parse(raw, form, "hostile").scalars  # type: ignore[arg-type]  # noqa: B018
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_file_of_ten_megabytes_is_refused_by_its_size(tmp_path) -> None:
    (tmp_path / "c.yaml").write_bytes(b"a: 1\n" * 2_000_000)
    with pytest.raises(ConfigUnreadableError, match=r"9\.5 MiB; more than 2 MiB is not read"):
        read(tmp_path / "c.yaml")


def test_no_tag_is_ever_executed(tmp_path) -> None:
    witness = tmp_path / "witness"
    raw = (
        f'a: !!python/object/apply:os.system ["touch {witness}"]\n'
        f"b: !!python/object/new:subprocess.Popen [[touch, {witness}]]\n"
        "c: !!python/name:os.system\n"
        "batch_size: 4\n"
    )
    document = parse(raw.encode(), "yaml", "x")
    assert document.scalars["a[0]"].value == f"touch {witness}"
    edited = document.with_values({"batch_size": 8})
    assert edited.decode() == raw.replace("4\n", "8\n")
    assert not witness.exists()


def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path, root) -> None:
    """In a process of its own, so that a read that blocks fails the test."""
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "one.yaml").symlink_to(tmp_path / "two.yaml")
    (tmp_path / "two.yaml").symlink_to(tmp_path / "one.yaml")
    (tmp_path / "gone.yaml").symlink_to(tmp_path / "nowhere.yaml")
    (tmp_path / "locked.yaml").write_text("a: 1\n")
    (tmp_path / "locked.yaml").chmod(0)
    code = """if True:
        import sys
        from advisor.config import read
        from advisor.errors import AdvisorError
        for name in sys.argv[1:]:
            try:
                read(name)
            except AdvisorError as problem:
                print(type(problem).__name__, problem)
    """
    names = ["pipe", "folder", "socket", "one", "gone", "locked", "missing"]
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(tmp_path, os.O_RDONLY)
        try:
            server.bind(f"/proc/self/fd/{folder}/socket.yaml")
        finally:
            os.close(folder)
        places = (str(tmp_path / f"{name}.yaml") for name in names)
        done = ran(sys.executable, "-c", code, *places, cwd=root, timeout=30, check=True)
    wanted = [
        ("ConfigUnreadableError", "is a named pipe"),
        ("ConfigUnreadableError", "is a directory"),
        ("ConfigUnreadableError", "is a socket"),
        ("ConfigUnreadableError", "symbolic links"),
        ("ConfigMissingError", "is not there"),
        ("ConfigUnreadableError", "no read permission"),
        ("ConfigMissingError", "is not there"),
    ]
    lines = done.stdout.splitlines()
    assert len(lines) == len(wanted)
    for line, (kind, problem) in zip(lines, wanted, strict=True):
        assert line.startswith(kind)
        assert problem in line


@pytest.mark.parametrize("name", ["a\0b", "a" * 5000, "/dev/zero", "/dev/null/x"])
def test_names_that_cannot_be_opened_are_refused(name) -> None:
    with pytest.raises((ConfigUnreadableError, ConfigMissingError)):
        read(name)
