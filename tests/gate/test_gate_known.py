"""What base ought to measure and cannot is red, with the line that mends it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from gate_engine import asked_for, in_process

from advisor.errors import UsageError
from advisor.gate import history, modes
from advisor.gate.base import base_checkout, base_revision, head_checkout
from advisor.gate.command import exit_code
from advisor.gate.history import History, Series
from tests.gate.repos import STEADY, WARM_UPS

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = '[workload.train]\ncommand = "python bench.py{}"\n{}'
RATE = STEADY.format(rate=100)
READS = "import os; open('data/x.bin').close()\n" + RATE


@pytest.fixture
def quick(repo, tmp_path, monkeypatch):
    """A gate of base against head whose processes are none."""
    gate = in_process(repo.path, tmp_path, monkeypatch, modes)
    return lambda *flags: gate(modes.ab, *flags)


@pytest.mark.parametrize(
    ("head", "cause"),
    [
        ({"gpu-advisor.toml": SETTINGS.format("", 'env = { SIZE = "1" }\n')}, "env was {}"),
        ({"gpu-advisor.toml": SETTINGS.format(" --small", "")}, "'python bench.py --small'"),
        ({"gpu-advisor.toml": SETTINGS.format("", 'unit = "image"\n')}, "unit was 'sample'"),
        ({"gpu-advisor.toml": SETTINGS.format("", "metric-regex = 'x (.*)'\n")}, "metric"),
    ],
    ids=["env", "command", "unit", "pattern"],
)
def test_a_workload_of_bases_settings_that_head_defines_otherwise_is_red(
    repo, quick, head: dict[str, str], cause: str
) -> None:
    """Whoever changes the measure cannot be measured by it, to-day or ever after."""
    repo.commit({"rate": "100", "gpu-advisor.toml": SETTINGS.format("", "")}, "base")
    repo.commit(head, "head")
    found = quick("--workload", "train")
    assert found.verdict == "error"
    assert cause in found.reason
    assert "--allow-removed 'train'" in found.reason
    accepted = quick("--workload", "train", "--allow-removed", "train")
    assert accepted.verdict == "no-baseline"


def test_a_head_that_no_longer_says_its_rate_is_red(repo) -> None:
    """Also of a plain command: base measured it, so it is known."""
    repo.commit({"bench.py": RATE})
    repo.commit({"bench.py": "print('Throughput = 100')"})
    found = repo.gate("--command", "python bench.py", "--max-minutes", "3")
    assert (found.code, found.record.verdict) == (2, "error"), found.stderr
    assert "throughput line" in found.record.reason
    assert "--allow-removed 'command'" in found.record.reason


def test_data_that_git_ignores_is_named_with_the_line_that_shares_it(repo) -> None:
    """It lies in head's folder only: base fails for ever, and green would mean nothing."""
    repo.commit({"bench.py": READS, ".gitignore": "data/\n"})
    repo.commit({"x": "1"})
    (repo.path / "data").mkdir()
    (repo.path / "data" / "x.bin").write_text("1")
    failed = repo.gate("--command", "python bench.py", *WARM_UPS)
    assert (failed.code, failed.record.verdict) == (2, "error"), failed.stderr
    assert "--link data" in failed.record.reason
    shared = repo.gate("--command", "python bench.py", *WARM_UPS, "--link", "data")
    assert shared.record.verdict == "inconclusive", shared.stderr
    assert not (repo.path / "data").is_symlink()


@pytest.mark.parametrize(
    ("path", "said"), [("bench.py", "git tracks"), ("nowhere", "not there"), ("../x", "leads out")]
)
def test_what_cannot_be_linked_is_refused(repo, quick, path: str, said: str) -> None:
    repo.commit({"bench.py": RATE})
    repo.commit({"x": "1"})
    with pytest.raises(UsageError, match=said):
        quick("--link", path)


def test_what_the_history_knows_is_red_where_base_cannot_run_it(repo, quick) -> None:
    """Past sessions tell that a command was measured before; of another they tell nothing."""
    repo.commit({"rate": ""})
    repo.commit({"rate": "100"})
    new = quick()
    assert new.verdict == "no-baseline"
    definition = new.programs[0].definition
    past = repo.out / "history.json"
    for facts, verdict in ((f"{definition}/command", "error"), ("other/command", "no-baseline")):
        series = Series(workload="command", unit="unit", facts={"workload": facts})
        past.write_bytes(history.dump(History(series={"key": series})))
        assert quick("--history", str(past)).verdict == verdict


def test_what_is_really_new_passes_and_is_named(repo, quick) -> None:
    repo.commit({"README.md": "x"})
    repo.commit({"rate": "100", "gpu-advisor.toml": SETTINGS.format("", "")})
    found = quick("--workload", "train")
    assert found.verdict == "no-baseline"
    assert exit_code(found, asked_for("--on-inconclusive", "warn")) == 0
    assert "new in head" in found.reason
    assert "'train'" in found.reason


# --- what git leaves out of a worktree ------------------------------------------------------


def checked_out(repo, names: list[str]) -> dict[str, str]:
    head = head_checkout(repo.path)
    with base_checkout(head, base_revision(head, "HEAD^", {})) as other:
        return {name: (other.top / name).read_text() for name in names}


def test_submodules_come_along_each_at_its_commit(repo, tmp_path: Path) -> None:
    """Nested ones too, without the network, and nothing of them stays."""

    def new(name: str, text: str) -> Path:
        folder = tmp_path / name
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
        (folder / "data.txt").write_text(text)
        commit(folder)
        return folder

    def commit(folder: Path) -> None:
        who = ("-c", "user.email=a@b", "-c", "user.name=a")
        subprocess.run(["git", "-C", str(folder), "add", "-A"], check=True)
        subprocess.run(["git", "-C", str(folder), *who, "commit", "-qm", "x"], check=True)

    allow = ("-c", "protocol.file.allow=always")
    inner, outer = new("inner", "inner"), new("outer", "one")
    add = ("submodule", "--quiet", "add")
    subprocess.run(["git", "-C", str(outer), *allow, *add, str(inner), "in"], check=True)
    commit(outer)
    repo.git(*allow, *add, str(outer), "sub")
    repo.git(*allow, "submodule", "--quiet", "update", "--init", "--recursive")
    repo.commit({"x": "1"})
    (repo.path / "sub" / "data.txt").write_text("two")
    commit(repo.path / "sub")
    repo.commit({"x": "2"})
    found = checked_out(repo, ["sub/data.txt", "sub/in/data.txt"])
    assert found == {"sub/data.txt": "one", "sub/in/data.txt": "inner"}
    assert (repo.path / "sub" / "data.txt").read_text() == "two"
    assert repo.git("status", "--porcelain") == ""
    repo.git("-C", "sub", "worktree", "list")


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 7\n"


def test_large_files_come_along_from_where_git_lfs_keeps_them(repo) -> None:
    """Base has a pointer of its own; the content is in the store that both share."""
    oid = 64 * "a"
    repo.commit({".gitattributes": "*.bin filter=lfs\n", "x.bin": POINTER.format(oid)})
    repo.commit({"x": "1"})
    (repo.path / "x.bin").write_text("content of head")
    store = repo.path / ".git" / "lfs" / "objects" / "aa" / "aa" / oid
    store.parent.mkdir(parents=True)
    store.write_text("content")
    assert checked_out(repo, ["x.bin"]) == {"x.bin": "content"}


def test_a_large_file_that_is_not_here_is_an_error_and_no_slow_base(repo) -> None:
    repo.commit({".gitattributes": "*.bin filter=lfs\n", "x.bin": POINTER.format(64 * "b")})
    repo.commit({"x": "1"})
    (repo.path / "x.bin").write_text("content of head")
    with pytest.raises(UsageError, match=r"x\.bin of base is a Git LFS pointer"):
        checked_out(repo, ["x.bin"])


def test_a_submodule_commit_that_is_not_here_is_an_error(repo, tmp_path: Path) -> None:
    """With what brings it."""
    sub = tmp_path / "sub"
    subprocess.run(["git", "init", "-q", str(sub)], check=True)
    who = ("-c", "user.email=a@b", "-c", "user.name=a")
    subprocess.run(["git", "-C", str(sub), *who, "commit", "-qm", "x", "--allow-empty"], check=True)
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(sub), "sub")
    repo.git("update-index", "--cacheinfo", f"160000,{40 * '1'},sub")
    repo.git("commit", "-qm", "a commit that nobody has")
    repo.commit({"x": "1"})
    with pytest.raises(UsageError, match="Submodule sub of base"):
        checked_out(repo, [])
