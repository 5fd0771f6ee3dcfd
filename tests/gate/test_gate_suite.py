"""A pytest-benchmark suite through the gate: as processes of two commits, and as saved JSON."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from advisor.errors import UsageError
from advisor.gate.records import Inputs
from advisor.gate.replay import from_benchmarks
from advisor.gate.verdict import decide
from tests.gate.repos import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.gate.repos import Repo

SUITE = """
import os
import pytest

now = 0.0

def clock():
    global now
    now += 1e-7
    return now

def takes(seconds):
    global now
    now += seconds * (1 + os.getpid() % 7 / 5000)

@pytest.mark.benchmark(timer=clock)
def test_load(benchmark):
    benchmark(takes, {load})

@pytest.mark.benchmark(timer=clock)
def test_save(benchmark):
    benchmark(takes, 0.002)
"""
"""By a clock of its own, which runs as the same code would on a quiet machine."""

COMMAND = "python -m pytest -q -p no:cacheprovider suite.py --benchmark-enable"
PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p pytest_benchmark.plugin"}
"""Of the others that are installed a process of a suite needs none, and imports them for a second.
"""
FAST = " --benchmark-min-rounds=5 --benchmark-max-time=0.05"


def source(load: float = 0.005) -> str:
    return SUITE.format(load=load)


LOAD, SAVE = "command: suite.py::test_load", "command: suite.py::test_save"


@pytest.fixture
def repo(repo: Repo) -> Repo:
    """Its suites run with the one plugin that they need."""
    repo.env |= PLUGINS
    return repo


@pytest.mark.slow
def test_a_suite_of_two_commits(two) -> None:
    """Each benchmark is a workload: one of them is slower, by less than is allowed, which five
    pairs prove where a regression takes twelve."""
    head, flags = source(load=0.007), ("--json", "--threshold", "60%")
    found = two(source(), head, "suite.py").gate("--command", COMMAND + FAST, *flags)
    assert found.code == 0, found.stderr
    slowdowns = {w["name"]: w["slowdown_pct"] for w in found.json["workloads"]}
    assert slowdowns == {
        LOAD: pytest.approx(100 * 2 / 7, abs=1),
        SAVE: pytest.approx(0, abs=1),
    }
    assert {w["verdict"] for w in found.json["workloads"]} == {"pass"}
    assert found.json["workloads"][0]["source"] == "pytest-benchmark"
    assert found.json["pairs"] == 5


@pytest.mark.slow
def test_our_own_benchmarks_of_two_commits(repo) -> None:
    """What the repository's own workflow does, on a part of its suite: head computes each bound
    five times, which its benchmark shows; by less than is allowed, as above."""
    for name in ("advisor", "templates", "benchmarks"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, repo.path / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", repo.path)
    stats = (ROOT / "advisor" / "stats.py").read_text()
    repo.env["PYTEST_ADDOPTS"] += " -p xdist.plugin"  # whose options pyproject.toml has
    repo.commit({".gitignore": "__pycache__\n"}, "base")
    again = (
        "\n\nonce = walsh_interval\nwalsh_interval = lambda *a: [once(*a) for _ in range(5)][0]\n"
    )
    repo.commit({"advisor/stats.py": stats + again}, "head")
    command = f"{workflow_command()}/test_gate.py -k exact_bounds{FAST}"
    command = command.replace(".venv/bin/", "")
    found = repo.gate("--command", command, "--json", "--threshold", "99%")
    assert found.code == 0, found.stderr
    (workload,) = found.json["workloads"]
    assert workload["name"] == "command: benchmarks/test_gate.py::test_exact_bounds_of_24_pairs"
    assert workload["source"] == "pytest-benchmark"
    assert (workload["verdict"], workload["slowdown_pct"] > 30) == ("pass", True)


def workflow_command() -> str:
    """The one command of `benchmarks/`, as the workflow gates it, up to the folder's name."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/gate.yml").read_text())
    (step,) = (s for s in workflow["jobs"]["gate"]["steps"] if s.get("uses") == "./")
    command: str = step["with"]["command"]
    assert command == ".venv/bin/python -m pytest -q --benchmark-enable benchmarks"
    return command


def test_a_suite_that_does_not_start_is_an_error(two) -> None:
    found = two(source(), "import nothing_there", "suite.py").gate("--command", COMMAND + FAST)
    assert found.code == 2, found.stderr


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The JSON of one real run of a suite."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "suite.py").write_text(source())
    command = [sys.executable, *COMMAND.split()[1:], *FAST.split(), "--benchmark-json=all.json"]
    subprocess.run(
        command, cwd=folder, env={**os.environ, **PLUGINS}, check=True, capture_output=True
    )
    content: dict[str, Any] = json.loads((folder / "all.json").read_text())
    return content


@pytest.fixture
def saved(tmp_path: Path, once: dict[str, Any]) -> Callable[..., list[Path]]:
    """Writes the JSON of twelve processes of a suite of benchmarks, a little apart."""

    def make(
        name: str, benchmarks: tuple[str, ...] = ("load", "save"), slower: float = 1.0
    ) -> list[Path]:
        folder = tmp_path / name
        folder.mkdir()
        content = copy.deepcopy(once)
        content["benchmarks"] = content["benchmarks"][: len(benchmarks)]
        for entry, named in zip(content["benchmarks"], benchmarks, strict=True):
            # One real run has the right shape; names and times are set, so that the verdict is
            # certain.
            entry["name"] = f"test_{named}"
            entry["fullname"] = f"suite.py::test_{named}"
            entry["stats"]["mean"] = 0.005 * slower
        paths = []
        for number in range(12):
            for entry in content["benchmarks"]:
                entry["stats"]["mean"] *= 1 + 0.001 * (-1) ** number
            # Every process has a moment of its own.
            content["datetime"] = (
                f"2026-01-01T00:00:{number:02d}.{len(list(tmp_path.iterdir())):06d}"
            )
            path = folder / f"{number}.json"
            path.write_text(json.dumps(content))
            paths.append(path)
        return paths

    return make


def test_saved_runs_of_a_suite(repo, saved) -> None:
    base, same, slow = saved("base"), saved("same"), saved("slow", slower=1.2)
    names = ("--head-runs", *map(str, slow), "--base-runs", *map(str, base))
    red = repo.gate("--mode", "replay", *names, "--json")
    assert red.code == 1, red.stderr
    assert decide([from_benchmarks(base, same)], Inputs()).verdict == "pass"
    assert {w["name"] for w in red.json["workloads"]} == {
        "benchmarks: suite.py::test_load",
        "benchmarks: suite.py::test_save",
    }


def test_a_renamed_benchmark_is_not_lost(saved) -> None:
    runs = from_benchmarks(saved("base"), saved("head", ("load", "store")))
    found = decide([runs], Inputs())
    assert found.verdict == "error"
    assert {w.name.split("::")[1]: w.verdict for w in found.workloads} == {
        "test_load": "pass",
        "test_save": "error",
        "test_store": "no-baseline",
    }
    removed = Inputs(allow_removed=["suite.py::test_save"])
    assert decide([runs], removed).verdict == "no-baseline"


def test_no_benchmark_in_common_is_an_error(saved) -> None:
    """The most used suite runner exits with 0 here."""
    runs = from_benchmarks(saved("base", ("a",)), saved("head", ("b",)))
    assert decide([runs], Inputs()).verdict == "error"


def test_unequal_numbers_of_files_are_a_usage_error(saved) -> None:
    base = saved("base")
    with pytest.raises(UsageError, match="12 files"):
        from_benchmarks(base, base[:3])
