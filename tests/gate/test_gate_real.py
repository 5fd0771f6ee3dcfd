"""The gate as a user calls it: real repositories, real processes, real exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import jsonschema
import pytest

from advisor.errors import ReportError
from advisor.gate import report
from advisor.gate.cli import exit_code
from advisor.gate.schema import GateRecord, Inputs
from tests.gate.repos import ROOT, STEADY, WARM_UPS, Gated, Repo, base_and_head
from tests.gate.runner import OUTPUTS

BENCH = ("--command", "python bench.py")


def steady(rate: float) -> str:
    return STEADY.format(rate=rate)


@pytest.fixture(scope="module")
def same(tmp_path_factory, new_repo) -> tuple[Repo, Gated]:
    """A gate on a head that is 1 % slower, with a setup that notes its calls."""
    repo = new_repo(tmp_path_factory.mktemp("same"))
    base_and_head(repo, steady(100), steady(99))
    log = "echo $GPU_ADVISOR_ARM $PWD >> $GPU_ADVISOR_HEAD/../out/setup.log"
    return repo, repo.gate(*BENCH, "--setup", log)


@pytest.fixture(scope="module")
def slower(tmp_path_factory, new_repo) -> tuple[Repo, Gated]:
    """A gate on a head that is 10 % slower."""
    repo = new_repo(tmp_path_factory.mktemp("slower"))
    base_and_head(repo, steady(100), steady(90))
    return repo, repo.gate(*BENCH)


def test_equal_speed_passes_after_five_pairs_and_leaves_nothing(same: tuple[Repo, Gated]) -> None:
    """No worktree, no branch, no file in the checkout; the setup ran once in each arm."""
    repo, found = same
    assert found.code == 0, found.stderr
    assert (found.record.verdict, found.record.pairs) == ("pass", 5)
    assert found.record.slowdown_pct == pytest.approx(1, abs=0.3)
    assert found.record.workloads[0].source == "throughput line"
    assert len(repo.git("worktree", "list").splitlines()) == 1
    assert repo.git("branch", "--list") == "* main"
    assert repo.git("status", "--porcelain", "--ignored") == ""
    setups = (repo.out / "setup.log").read_text().splitlines()
    assert [line.split()[0] for line in setups] == ["base", "head"]
    assert setups[0].split()[1] != setups[1].split()[1]


def test_the_record_holds_raw_values_and_keeps_its_schema(same: tuple[Repo, Gated]) -> None:
    _, found = same
    raw = json.loads((found.folder / "gate.json").read_text())
    jsonschema.validate(raw, json.loads((ROOT / "docs" / "gate.schema.json").read_text()))
    assert raw["schema_version"] == 3
    assert raw["confidence"] == 0.9
    assert raw["programs"][0]["pairs"][0]["base"]["rates"]["command"]["mean"] > 0
    assert found.record.validity.startswith(("verified", "unverified", "busy"))


def test_a_slower_head_is_red(slower: tuple[Repo, Gated]) -> None:
    repo, found = slower
    assert found.code == 1, found.stderr
    assert (found.record.verdict, found.record.pairs) == ("regression", 12)
    assert found.record.ci_low_pct > 5
    assert found.record.base.sha == repo.git("rev-parse", "HEAD^")
    assert "Regression" in found.stdout
    for name in ("gate.md", "gate.json", "gate-comment.md", "gate-benchmarks.json"):
        assert (found.folder / name).stat().st_size > 100


def test_the_whole_run_counts_where_no_rate_is_seen(two) -> None:
    program = "import time; time.sleep({})"
    found = two(program.format(0), program.format(0.5)).gate(*BENCH, *WARM_UPS)
    runs = {run.arm: run for run in found.record.programs[0].warm_ups}
    for run in runs.values():
        assert (run.source, run.rates["command"].unit) == ("whole-run time", "run")
    assert runs["head"].rates["command"].mean < 2


def test_a_generic_benchmark_file_is_read(two) -> None:
    write = """
import json, os
values = [{{"name": "fps", "value": {}, "unit": "frame"}}]
json.dump(values, open(os.environ["GPU_ADVISOR_BENCHMARK_JSON"], "w"))
"""
    found = two(write.format(100), write.format(50)).gate(*BENCH, *WARM_UPS)
    rates = {run.arm: run.rates["fps"].mean for run in found.record.programs[0].warm_ups}
    assert rates == {"base": 100, "head": 50}


def test_a_look_that_does_not_fit_is_not_begun(two) -> None:
    slow = "import time; time.sleep(0.5); print('throughput: 100')"
    found = two(slow, slow).on_github().gate(*BENCH, "--max-minutes", "0.1", "--bisect-exit")
    assert (found.code, found.record.verdict) == (125, "inconclusive"), found.stderr
    assert "budget" in found.record.workloads[0].reason
    assert set(found.outputs) == OUTPUTS
    assert not found.record.programs[0].pairs
    assert re.search(r"give --max-minutes \d+ or more", found.record.workloads[0].reason)


@pytest.mark.parametrize(
    ("verdict", "asked", "bisect", "code"),
    [
        ("inconclusive", "fail", False, 3),
        ("inconclusive", "warn", False, 0),
        ("no-baseline", "warn", False, 0),
        ("invalid", "warn", False, 4),
        ("inconclusive", "warn", True, 125),
        ("error", "fail", True, 125),
        ("regression", "fail", True, 1),
        ("pass", "fail", True, 0),
    ],
)
def test_the_exit_code_follows_verdict_and_flags(verdict, asked, *, bisect: bool, code) -> None:
    record = GateRecord(verdict=verdict, reason="", inputs=Inputs(on_inconclusive=asked))
    assert exit_code(record, bisect=bisect) == code


TURNS = """
import os, pathlib, time
turns = pathlib.Path(os.environ["TURNS"])
with turns.open("a") as file:
    file.write(".")
if len(turns.read_text()) >= 5:
    time.sleep(600)
print("throughput: 100")
"""


@pytest.mark.slow
def test_a_run_that_hangs_does_not_outlast_the_budget(two) -> None:
    repo = two(TURNS, TURNS)
    repo.env |= {"TURNS": str(repo.out / "turns")}
    found = repo.gate(*BENCH, "--max-minutes", "0.3")
    assert found.record.verdict in {"error", "no-baseline"}
    assert "timeout" in found.record.workloads[0].reason
    assert found.record.wall_s < 120


@pytest.mark.parametrize(("arm", "verdict"), [("base", "no-baseline"), ("head", "error")])
def test_a_setup_that_fails(two, arm: str, verdict: str) -> None:
    fails = f'if [ "$GPU_ADVISOR_ARM" = {arm} ]; then echo cannot build; exit 7; fi'
    found = two(steady(100), steady(100)).gate(*BENCH, *WARM_UPS, "--setup", fails)
    assert found.record.verdict == verdict
    assert "cannot build" in found.record.workloads[0].reason


def test_workloads_of_the_settings_file_with_bounds_of_base(repo) -> None:
    """Head loosens its own bound, which is read in base."""
    settings = '[workload.a]\ncommand = "python a.py"\nunit = "image"\n{}'
    bound = '[workload.a.gate]\nthroughput = "{}"\n'
    repo.commit({"a.py": steady(100), "gpu-advisor.toml": settings.format(bound.format("3%"))})
    repo.commit({"a.py": steady(96), "gpu-advisor.toml": settings.format(bound.format("90%"))})
    found = repo.gate("--workload", "a")
    (workload,) = found.record.workloads
    assert (workload.verdict, workload.threshold) == ("regression", 0.03), found.stderr
    assert (workload.name, workload.unit) == ("a", "image")


def test_uncommitted_changes_are_head(repo) -> None:
    repo.commit({"bench.py": steady(100)})
    (repo.path / "bench.py").write_text(steady(80))
    record = repo.gate(*BENCH, *WARM_UPS).record
    rates = {run.arm: run.rates["command"].mean for run in record.programs[0].warm_ups}
    assert rates == {"base": pytest.approx(100, rel=0.01), "head": pytest.approx(80, rel=0.01)}
    assert record.head.dirty
    assert record.base.sha == repo.git("rev-parse", "HEAD")


def test_head_against_itself_measures_the_noise(repo) -> None:
    repo.commit({"bench.py": steady(100)})
    found = repo.gate(*BENCH, "--base-ref", "HEAD")
    (noise,) = found.record.workloads
    assert (found.record.mode, noise.verdict) == ("noise", "pass")
    assert len(found.record.programs[0].pairs) == 12
    assert noise.noise_pct < 1
    assert "smallest threshold that equal code passes: --threshold 1%" in found.stdout


def test_a_history_grows_and_is_compared(repo) -> None:
    repo.commit({"bench.py": steady(100)})
    path = repo.out / "history.json"
    found = repo.gate(*BENCH, "--history", str(path), "--on-inconclusive", "warn")
    assert (found.code, found.record.verdict) == (0, "no-baseline"), found.stderr
    kept = json.loads(path.read_text())
    (session,) = kept["sessions"]
    kept["sessions"] = [{**session, "value": 200 + n / 10} for n in range(12)]
    path.write_text(json.dumps(kept))
    found = repo.gate(*BENCH, "--history", str(path))
    assert (found.code, found.record.verdict) == (1, "regression"), found.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        "--threshold=five", "--threshold=0", "--threshold=150%", "--max-minutes=-1",
        "--max-minutes=nan", "--on-inconclusive=maybe", "--keep-network=perhaps",
        "--mode=foo", "--base-ref=HEAD --history=x",
    ],
)  # fmt: skip
def test_a_wrong_argument_touches_no_file(two, wrong: str) -> None:
    """Not even a report of an earlier gate, nor the outputs: the action sets their defaults."""
    repo = two(steady(100), steady(100)).on_github()
    for name in ("gate.md", "gate.json", "output"):
        (repo.out / name).write_text("earlier")
    found = repo.gate(*BENCH, *wrong.split())
    assert (found.code, found.stdout) == (2, "")
    assert wrong.partition("=")[0] in found.stderr
    for name in ("gate.md", "gate.json", "output"):
        assert (repo.out / name).read_text() == "earlier"


def test_the_flags_fit_on_a_page(gpu_advisor, tmp_path) -> None:
    done = gpu_advisor.call("gate", "--help", cwd=tmp_path, env=dict(os.environ))
    flags = set(re.findall(r"^  (--[a-z-]+)", done.stdout, re.MULTILINE))
    assert len(flags - {"--debug", "--help"}) <= 16, flags


def test_an_unknown_workload_is_named(repo) -> None:
    repo.commit({"x": "1"})
    found = repo.gate("--workload", "unknown")
    assert found.code == 2
    assert "no workload 'unknown'" in found.stderr


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_signal_in_the_middle_ends_with_a_partial_report(two, number) -> None:
    """Exit code 4, outputs set, pairs so far kept, no process of the program left."""
    marker = f"gate-signal-test-{os.getpid()}-{number}"
    slow = f"import time, sys; sys.argv.append('{marker}'); time.sleep(1); print('throughput: 1')"
    repo = two(slow, slow).on_github()
    with repo.begun("--command", f"python bench.py {marker}") as gate:
        gate.until("pair 1")
        time.sleep(0.5)
        code = gate.stopped(number)
    found = repo.ended(code, gate.said.read_text(), gate.told.read_text())
    assert found.code == 4, found.stderr
    assert found.outputs["verdict"] == "invalid"
    assert len(found.record.programs[0].pairs) == 1
    assert "Interrupted" in found.record.reason
    left = subprocess.run(["pgrep", "-f", marker], capture_output=True, text=True, check=False)
    assert left.stdout == ""


@pytest.mark.parametrize(
    "content", ["", "{}", '{"schema_version": 99}', "\udcff"], ids=["empty", "no", "99", "bytes"]
)
def test_a_file_that_is_no_record_is_one_clear_error(tmp_path, content: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(ReportError, match=re.escape(str(path))) as found:
        report.read(path)
    assert "\n" not in str(found.value)


def test_an_exception_of_our_own_is_an_error_and_no_regression(two) -> None:
    """Python ends with 1 on an exception, and 1 means that a slowdown was proven."""
    repo = two(steady(100), steady(100)).on_github()
    breaks = (
        "import sys; from advisor.gate import cli; from advisor.__main__ import main; "
        "cli._measure = lambda *_: 1 / 0; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", breaks, *repo.command(*BENCH)[3:]]
    done = subprocess.run(
        command, cwd=repo.path, env=repo.environment(), capture_output=True, text=True, check=False
    )
    found = repo.ended(done.returncode, done.stdout, done.stderr)
    assert found.code == 2
    assert "ZeroDivisionError" in found.stderr
    assert found.outputs["verdict"] == found.record.verdict == "error"


def test_without_git_it_is_one_clear_error(two) -> None:
    found = two(steady(100), steady(100)).gate(*BENCH, env={"PATH": "/nowhere"})
    assert found.code == 2
    assert "git" in found.stderr
    assert found.stderr.count("\n") == 1


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 9\n"


def test_large_files_need_a_second_checkout(repo) -> None:
    """A pointer in base would be measured against content in head; both checkouts have content.

    The second one may lie inside the first, where `actions/checkout` puts it.
    """
    pointer = LFS.format("0" * 64)
    files = {".gitattributes": "data filter=lfs\n", "data": pointer, "bench.py": steady(100)}
    repo.commit(files)
    repo.commit({"bench.py": steady(50)})
    (repo.path / "data").write_text("content")
    found = repo.gate(*BENCH, *WARM_UPS)
    assert found.code == 2
    assert "data of base is a submodule or a Git LFS file" in found.stderr
    second = repo.path / "base"
    repo.git("worktree", "add", "--detach", str(second), "HEAD^")
    (second / "data").write_text("content")
    found = repo.gate(*BENCH, *WARM_UPS, "--base-ref", str(second))
    assert found.record.verdict == "inconclusive", found.record.reason
    rates = {run.arm: run.rates["command"].mean for run in found.record.programs[0].warm_ups}
    assert rates == {"base": pytest.approx(100, rel=0.01), "head": pytest.approx(50, rel=0.01)}


def test_git_runs_no_program_of_the_repository(two) -> None:
    """Hooks, the monitor and filters, in the repository's own settings and in the user's."""
    repo = two(steady(100), steady(100))
    ran = repo.out / "ran"
    program = repo.path / "program.sh"
    program.write_text(f"#!/bin/sh\necho $0 $1 >> {ran}\ncat\n")
    program.chmod(0o755)
    hook = repo.path / ".git" / "hooks" / "post-checkout"
    hook.write_text(program.read_text())
    hook.chmod(0o755)
    repo.commit({".gitattributes": "*.py filter=own\n"})
    (repo.path / "bench.py").write_text(steady(99))
    home = repo.out / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(f'[filter "own"]\nclean = {program}\nsmudge = {program}\n')
    for name in ("clean", "smudge", "process"):
        repo.git("config", f"filter.own.{name}", str(program))
    repo.git("config", "filter.own.required", "true")
    repo.git("config", "core.fsmonitor", str(program))
    found = repo.gate(*BENCH, *WARM_UPS, env={"HOME": str(home)})
    assert found.record.verdict == "inconclusive", found.stderr
    assert not ran.exists(), ran.read_text()
