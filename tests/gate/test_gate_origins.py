"""Base and head run code of their own, or the verdict is invalid."""

import json
import re
import shlex
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from gate_examples import around, program_of, record_of

from advisor.gate.checkout import LOADED_FILES, Checkout, Difference, difference, loaded
from advisor.gate.schema import LoadedEntry, Revision
from advisor.probe.origins import FILE
from tests.gate.repos import WARM_UPS, Gated

MODEL = "RATE = {}\n"
USES_MODEL = """
import os, model
print("throughput:", model.RATE * (1 + (os.getpid() % 7) / 5000))
"""
ELSEWHERE = "import sys; sys.path.pop(0)\n" + USES_MODEL
"""Imports its model from wherever else it may be."""
OF_HEAD = {
    "workspace": "cd $GITHUB_WORKSPACE && python bench.py",
    "absolute": "python {head}/bench.py",
    "path": "PYTHONPATH={head} python elsewhere.py",
    "runpy": "python -c \"import runpy; runpy.run_path('{head}/bench.py')\"",
    "child": "python parent.py",
    "config": "CONFIG={head}/rate.txt python reads.py",
    "editable": "{shared} elsewhere.py",
    "copied": "PYTHONPATH={site} python elsewhere.py",
}
"""Commands by which base runs a file of head, or reads one that differs: a slowdown of a half
would pass. By the last no file of a checkout is loaded, but what is has the content of head's."""
OF_THEIR_OWN = {"own": "python bench.py", "environment": "{inside} -c 'import dependency, bench'"}
"""The last by an environment in the checkout of head, which holds what both arms depend on, and no
code of the project's."""
COMMANDS = {**OF_HEAD, **OF_THEIR_OWN}


def environment(folder: Path) -> tuple[Path, Path]:
    """A Python environment that both arms share: its interpreter, and where modules are."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder)], check=True
    )
    return folder / "bin" / "python", next((folder / "lib").glob("python*")) / "site-packages"


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory, new_repo) -> Gated:
    """A gate of all these commands: head is half as fast as base, by a change of its model."""
    folder = tmp_path_factory.mktemp("origins")
    repo = new_repo(folder)
    shared, installed = environment(folder / "shared")
    (installed / "__editable__project.pth").write_text(f"{repo.path}\n")
    inside, dependencies = environment(repo.path / ".venv")
    (dependencies / "dependency.py").write_text("")
    (folder / "site").mkdir()
    (folder / "site" / "model.py").write_text(MODEL.format(50))
    places = {
        "head": repo.path, "shared": shared, "inside": inside, "site": folder / "site",
    }  # fmt: skip
    settings = ""
    for name, command in COMMANDS.items():
        words = json.dumps(f"bash -c {shlex.quote(command.format(**places))}")
        settings += f"[workload.{name}]\ncommand = {words}\n"
    files = {
        "bench.py": USES_MODEL,
        "elsewhere.py": ELSEWHERE,
        "parent.py": "import subprocess, sys\n"
        f"subprocess.run([sys.executable, {str(repo.path / 'bench.py')!r}], check=True)",
        "reads.py": "import os; print('throughput:', open(os.environ['CONFIG']).read())",
        ".gitignore": ".venv\n",
        "gpu-advisor.toml": settings,
    }
    repo.commit({**files, "model.py": MODEL.format(100), "rate.txt": "100"})
    repo.commit({"model.py": MODEL.format(50), "rate.txt": "50"})
    repo.env["GITHUB_WORKSPACE"] = str(repo.path)
    return repo.gate("--workload", ",".join(COMMANDS), *WARM_UPS)


def test_base_that_runs_a_file_of_head_is_invalid(gated) -> None:
    """Or reads one that differs, as a config: head's measure in both. The reason names it."""
    found = {
        workload.name: workload for workload in gated.record.workloads if workload.name in OF_HEAD
    }
    assert {name for name, each in found.items() if each.verdict == "invalid"} == set(OF_HEAD)
    for name, each in found.items():
        why = "same 'model.py'" if name == "copied" else "head was measured twice"
        assert why in each.reason
        assert re.search(r"'(bench|model)\.py'|'rate\.txt'", each.reason)


def test_a_change_that_each_arm_loads_for_itself_is_measured(gated) -> None:
    verdicts = {workload.name: workload.verdict for workload in gated.record.workloads}
    for entry in gated.record.programs:
        if entry.name in OF_THEIR_OWN:
            assert verdicts[entry.name] == "inconclusive", gated.stderr
            base, head = (run.loaded.changed for run in entry.warm_ups if run.loaded)
            assert base.keys() == head.keys() == {"model.py"}
            assert base != head


def test_a_difference_counts_uncommitted_and_new_files(repo) -> None:
    """They belong to head; what git ignores does not."""
    first = repo.commit({"a.py": "1", "b.py": "1", ".gitignore": "data\n"})
    base = repo.path.parent / "base"
    repo.git("worktree", "add", "-q", "--detach", str(base), first)
    for name, text in {"a.py": "2", "c.py": "new", "data": "ignored"}.items():
        (repo.path / name).write_text(text)
    arms = [Checkout(top=top, cwd=top, revision=Revision(sha=first)) for top in (base, repo.path)]
    between = difference(*arms)
    assert set(between.changed) == set(between.asked.names) == {"a.py", "c.py"}
    assert between.changed["c.py"]["base"] is None
    assert difference(arms[0], arms[0]) is None


def test_a_link_that_leads_out_is_compared_by_its_target(repo) -> None:
    """What it leads to may be a secret, or a file of the kernel's that never ends."""
    first = repo.commit({"a.py": "1"})
    base = repo.path.parent / "base"
    repo.git("worktree", "add", "-q", "--detach", str(base), first)
    (repo.out / "key").write_text("precious")
    (repo.path / "link").symlink_to(repo.out / "key")
    (repo.path / "inside").symlink_to("a.py")
    arms = [Checkout(top=top, cwd=top, revision=Revision(sha=first)) for top in (base, repo.path)]
    changed = difference(*arms).changed
    assert changed["link"]["head"] == sha256(str(repo.out / "key").encode()).hexdigest()
    assert changed["inside"]["head"] == sha256(b"1").hexdigest()


@pytest.mark.parametrize("more", [0, 1])
def test_files_beyond_those_looked_at_are_told(tmp_path, more) -> None:
    """Their list was cut in silence: code of the other arm behind its end looked like none."""
    (tmp_path / "probe").mkdir()
    entry = json.dumps({"how": "ran", "path": "/x/a.py", "sha256": None})
    (tmp_path / "probe" / FILE).write_text(f"{entry}\n" * (LOADED_FILES + more))
    between = Difference(tops={"base": tmp_path / "base", "head": tmp_path / "head"}, changed={})
    assert loaded(tmp_path, tmp_path / "head", between).cut is bool(more)


@pytest.mark.parametrize("cut", [False, True])
def test_the_record_says_where_not_all_files_were_looked_at(cut) -> None:
    """The verdict stays, and the note names the arm."""
    program = program_of(around(100), around(100))
    seen = LoadedEntry(cut=cut)
    pairs = [
        pair.model_copy(update={"head": pair.head.model_copy(update={"loaded": seen})})
        for pair in program.pairs
    ]
    program = program.model_copy(update={"pairs": pairs})
    told = [note for note in record_of(program).notes if "for code of the other arm" in note]
    assert len(told) == cut
    assert all("head loaded too many files:" in note for note in told)
