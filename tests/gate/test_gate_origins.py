"""Base and head run code of their own, or the verdict is invalid."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from typing import TYPE_CHECKING

import pytest
from gate_examples import pair, program, run

from advisor.gate.base import Checkout
from advisor.gate.entries import LoadedEntry
from advisor.gate.origins import difference, unseen
from advisor.gate.records import Inputs, Revision
from advisor.gate.verdict import decide
from tests.gate.repos import STEADY, WARM_UPS

if TYPE_CHECKING:
    from pathlib import Path

MODEL = "RATE = {}\n"
USES_MODEL = """
import os, model
print("throughput:", model.RATE * (1 + (os.getpid() % 7) / 5000))
"""
CHILD = "import subprocess, sys; subprocess.run([sys.executable, {!r}], check=True)"


def a_change(repo, extra: dict[str, str] | None = None) -> None:
    """Head is half as fast as base, by a change of model.py alone."""
    files = {"model.py": MODEL.format(100), "bench.py": USES_MODEL, **(extra or {})}
    repo.commit(files, "base")
    repo.commit({"model.py": MODEL.format(50)}, "head")


def environment_of(repo, folder: Path) -> Path:
    """A Python environment that both arms share, with head's checkout installed as editable."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder)], check=True
    )
    site = next((folder / "lib").glob("python*")) / "site-packages"
    (site / "__editable__project.pth").write_text(f"{repo.path}\n")
    return folder / "bin" / "python"


def test_a_change_that_each_arm_loads_for_itself_is_measured(repo) -> None:
    a_change(repo)
    found = repo.gate("--command", "python bench.py", *WARM_UPS)
    assert found.record.verdict == "inconclusive", found.stderr
    loaded = {run.arm: run.loaded for run in found.record.programs[0].warm_ups}
    assert loaded["base"].own == loaded["head"].own == 2
    assert loaded["base"].changed.keys() == loaded["head"].changed.keys() == {"model.py"}
    assert loaded["base"].changed != loaded["head"].changed
    assert not any("seen to be loaded" in note for note in found.record.notes)


@pytest.mark.parametrize(
    "command",
    [
        "cd $GITHUB_WORKSPACE && python bench.py",
        "python {head}/bench.py",
        "PYTHONPATH={head} python away.py",
        "python -c \"import sys; sys.path.insert(0, '{head}'); import bench\"",
        "python -c \"import runpy; runpy.run_path('{head}/bench.py')\"",
        "python executes.py",
        "python parent.py",
        "cd {head}/.. && {name}/run.sh",
    ],
    ids=["workspace", "absolute", "path", "sys.path", "runpy", "exec", "child", "script"],
)
def test_base_that_runs_a_file_of_head_is_invalid(repo, command: str) -> None:
    """A 50 % slowdown would pass: base runs head's code. The reason names the file."""
    away = "import sys; sys.path.pop(0)\nimport os, model\nprint('throughput:', model.RATE)\n"
    script = f"#!/bin/sh\nexec {sys.executable} $(dirname $0)/bench.py\n"
    source = f"{repo.path}/model.py"
    extra = {
        "away.py": away,
        "executes.py": f"exec(compile(open({source!r}).read(), {source!r}, 'exec'))\n"
        "print('throughput:', RATE)",
        "parent.py": CHILD.format(str(repo.path / "bench.py")),
        "run.sh": script,
    }
    a_change(repo, extra)
    (repo.path / "run.sh").chmod(0o755)
    told = command.format(head=repo.path, name=repo.path.name)
    repo.env["GITHUB_WORKSPACE"] = str(repo.path)
    found = repo.gate("--command", told, *WARM_UPS)
    assert (found.code, found.record.verdict) == (4, "invalid"), found.stderr
    assert "head was measured twice" in found.record.reason
    assert ".py'" in found.record.reason


def test_a_shared_editable_install_is_invalid(repo, tmp_path: Path) -> None:
    """One environment, into which head is installed: both arms import head's module."""
    a_change(repo, {"bench.py": "import sys; sys.path.pop(0)\n" + USES_MODEL})
    python = environment_of(repo, tmp_path / "shared")
    found = repo.gate("--command", f"{python} bench.py", *WARM_UPS)
    assert (found.code, found.record.verdict) == (4, "invalid"), found.stderr
    assert "'model.py' of head" in found.record.reason


def test_an_installed_copy_of_head_in_both_arms_is_invalid(repo, tmp_path: Path) -> None:
    """No file of a checkout is loaded, but what is has the content of head's."""
    a_change(repo, {"bench.py": "import sys; sys.path.pop(0)\n" + USES_MODEL})
    shared = tmp_path / "site"
    shared.mkdir()
    (shared / "model.py").write_text(MODEL.format(50))
    found = repo.gate("--command", "python bench.py", *WARM_UPS, env={"PYTHONPATH": str(shared)})
    assert (found.code, found.record.verdict) == (4, "invalid"), found.stderr
    assert "same 'model.py'" in found.record.reason


def test_an_environment_inside_the_checkout_of_head_may_be_shared(repo) -> None:
    """It holds what both arms depend on, and no code of the project's."""
    a_change(repo, {".gitignore": ".venv\n"})
    python = environment_of(repo, repo.path / ".venv")
    site = next((repo.path / ".venv" / "lib").glob("python*")) / "site-packages"
    (site / "__editable__project.pth").unlink()
    (site / "dependency.py").write_text("")
    found = repo.gate("--command", f"{python} -c 'import dependency, bench'", *WARM_UPS)
    assert found.record.verdict == "inconclusive", found.stderr


def test_changed_files_that_neither_arm_loads_are_told_once(repo) -> None:
    repo.commit({"bench.py": STEADY.format(rate=100)})
    repo.commit({"notes.md": "x", "other.py": ""})
    found = repo.gate("--command", "python bench.py", *WARM_UPS)
    assert found.record.verdict == "inconclusive"
    told = [note for note in found.record.notes if "seen to be loaded" in note]
    assert len(told) == 1
    assert "notes.md" in told[0]


def test_a_config_that_base_reads_from_head_is_invalid(repo) -> None:
    """Read, not run: a file that differs between the two is head's measure in both."""
    bench = "import os; rate = float(open(os.environ['CONFIG']).read()); print('throughput:', rate)"
    repo.commit({"bench.py": bench, "rate.txt": "100"})
    repo.commit({"rate.txt": "50"})
    command = f"CONFIG={repo.path}/rate.txt python bench.py"
    found = repo.gate("--command", command, *WARM_UPS)
    assert (found.code, found.record.verdict) == (4, "invalid"), found.stderr
    assert "'rate.txt' of head" in found.record.reason


def loaded(digest: str, **more: object) -> LoadedEntry:
    return LoadedEntry(own=2, changed={"model.py": digest}, **more)


@pytest.mark.parametrize(
    ("base", "head", "verdict"),
    [
        (loaded("a"), loaded("b"), "pass"),
        (loaded("b"), loaded("b"), "invalid"),
        (loaded("a", foreign=["model.py"]), loaded("b"), "invalid"),
        (loaded("a"), loaded("b", foreign=["model.py"]), "invalid"),
        (LoadedEntry(own=1), LoadedEntry(own=1), "pass"),
        (None, None, "pass"),
    ],
)
def test_the_record_alone_tells(base, head, verdict: str) -> None:
    """So that a replay comes to the same verdict."""
    pairs = [
        pair(n, run("base", {"train": 10 + n / 100}, loaded=base),
             run("head", {"train": 10 + n / 90}, loaded=head))
        for n in range(1, 7)
    ]  # fmt: skip
    assert decide([program(pairs)], Inputs()).verdict == verdict


def test_a_difference_counts_uncommitted_and_new_files(repo) -> None:
    """They belong to head; what git ignores does not."""
    first = repo.commit({"a.py": "1", "b.py": "1", ".gitignore": "data\n"})
    (repo.path / "a.py").write_text("2")
    (repo.path / "c.py").write_text("new")
    (repo.path / "data").write_text("ignored")
    base = repo.path.parent / "base"
    repo.git("worktree", "add", "-q", "--detach", str(base), first)
    arms = [Checkout(top=top, cwd=top, revision=Revision(sha=first)) for top in (base, repo.path)]
    between = difference(*arms)
    assert between is not None
    assert set(between.changed) == {"a.py", "c.py"}
    assert between.changed["c.py"]["base"] is None
    assert set(between.asked.names) == {"a.py", "c.py"}
    assert difference(arms[0], arms[0]) is None
    assert unseen(program([]), between) is None  # nothing was seen at all


def test_the_standard_library_is_nobodys(repo) -> None:
    """A changed file may have the name of another's: place or content make it the project's."""
    path = f"{sysconfig.get_paths()['stdlib']}/queue.py"
    repo.commit({"bench.py": "import queue\n" + STEADY.format(rate=100), "sub/queue.py": "1"})
    repo.commit({"sub/queue.py": "2"})
    found = repo.gate("--command", "python bench.py", *WARM_UPS)
    assert found.record.verdict == "inconclusive", (path, found.stderr)
