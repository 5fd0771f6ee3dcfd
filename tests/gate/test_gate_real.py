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
from gate_engine import asked_for, in_process
from gate_examples import program

from advisor.errors import ReportError, UsageError
from advisor.gate import modes, report, texts
from advisor.gate.base import head_checkout
from advisor.gate.command import exit_code
from advisor.gate.program import choose
from advisor.gate.records import HostEntry
from advisor.gate.workbench import decided
from tests.gate.repos import ROOT, STEADY, WARM_UPS, Gated, Repo, base_and_head

BENCH = ("--command", "python bench.py")


def steady(rate: float) -> str:
    return STEADY.format(rate=rate)


@pytest.fixture(scope="module")
def same(tmp_path_factory, new_repo) -> tuple[Repo, Gated]:
    """A gate on a head that is 1 % slower, with a setup that notes its calls."""
    repo = new_repo(tmp_path_factory.mktemp("same"))
    base_and_head(repo, steady(100), steady(99))
    log = "echo $GPU_ADVISOR_ARM $PWD >> $GPU_ADVISOR_HEAD/../out/setup.log"
    return repo, repo.gate(*BENCH, "--setup", log, "--json")


@pytest.fixture(scope="module")
def slower(tmp_path_factory, new_repo) -> tuple[Repo, Gated]:
    """A gate on a head that is 10 % slower."""
    repo = new_repo(tmp_path_factory.mktemp("slower"))
    base_and_head(repo, steady(100), steady(90))
    return repo, repo.gate(*BENCH)


def test_the_same_speed_passes(same: tuple[Repo, Gated]) -> None:
    _, found = same
    assert found.code == 0, found.stderr
    assert set(found.json) == {
        "verdict", "slowdown_pct", "ci_low_pct", "ci_high_pct", "mde_pct", "pairs",
        "discarded_pairs", "workloads",
    }  # fmt: skip
    assert found.json["verdict"] == "pass"
    assert found.json["pairs"] == 5
    assert found.json["slowdown_pct"] == pytest.approx(1, abs=0.3)
    assert found.json["workloads"][0]["source"] == "throughput line"


def test_nothing_is_left_behind(same: tuple[Repo, Gated]) -> None:
    """No worktree, no branch, no file in the checkout."""
    repo, _ = same
    assert len(repo.git("worktree", "list").splitlines()) == 1
    assert repo.git("branch", "--list") == "* main"
    assert repo.git("status", "--porcelain", "--ignored") == ""


def test_setup_runs_once_in_each_arm(same: tuple[Repo, Gated]) -> None:
    lines = (same[0].out / "setup.log").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["base", "head"]
    assert lines[0].split()[1] != lines[1].split()[1]


def test_the_json_record_holds_raw_values_and_both_hold_to_their_schema(
    same: tuple[Repo, Gated],
) -> None:
    _, found = same
    raw = json.loads((found.folder / "gate.json").read_text())
    schema = json.loads((ROOT / "docs" / "gate.schema.json").read_text())
    jsonschema.validate(raw, schema)
    jsonschema.validate(found.json, {**schema, "$ref": "#/$defs/Headline"})
    assert {key: raw[key] for key in found.json} == found.json
    assert raw["schema_version"] == 1
    assert raw["programs"][0]["pairs"][0]["base"]["rates"]["command"]["mean"] > 0
    assert raw["host"]["boot_id"]
    assert found.record.validity.startswith(("verified", "unverified", "busy"))


def test_a_slower_head_is_red_and_explained(slower: tuple[Repo, Gated]) -> None:
    repo, found = slower
    assert found.code == 1, found.stderr
    assert found.record.verdict == "regression"
    assert found.record.ci_low_pct > 5
    assert [p.order for p in found.record.programs[0].pairs[:3]] == [
        "base first", "head first", "base first",
    ]  # fmt: skip
    assert found.record.attribution
    assert found.record.base.sha == repo.git("rev-parse", "HEAD^")
    assert "Regression" in found.stdout
    for name in ("gate.md", "gate.json", "gate-comment.md", "gate-figures/gate-pairs.svg"):
        assert (found.folder / name).stat().st_size > 100


def test_a_replay_gives_the_same_verdict(slower: tuple[Repo, Gated], tmp_path) -> None:
    repo, first = slower
    saved = tmp_path / "saved.json"
    saved.write_bytes((first.folder / "gate.json").read_bytes())
    replay = ("--mode", "replay", "--replay", str(saved), "--report", str(tmp_path / "gate.md"))
    again = repo.gate(*replay, "--json")
    assert again.code == 1, again.stderr
    assert again.json["slowdown_pct"] == pytest.approx(first.record.slowdown_pct)
    assert repo.gate(*replay, "--threshold", "20%").code == 0


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("import nothing_of_that_name", "nothing_of_that_name"),
        ("print('throughput: nan')", "not finite"),
    ],
    ids=["import", "nan"],
)
def test_a_broken_head_is_an_error_and_not_a_regression(two, head: str, said: str) -> None:
    """Whether it ends with an error, or says what is no rate."""
    found = two(steady(100), head).gate(*BENCH, "--json")
    assert found.code == 2, found.stderr
    assert found.json["verdict"] == "error"
    assert said in found.json["workloads"][0]["reason"]


def test_a_broken_base_is_no_baseline(two) -> None:
    found = two("raise SystemExit(3)", steady(100)).gate(*BENCH, "--json")
    assert (found.code, found.json["verdict"]) == (3, "no-baseline")


def test_the_time_of_the_whole_run_counts_where_nothing_else_is_seen(two) -> None:
    """A run is the unit of work: one of half a second is none of two a second, or more."""
    program = "import time; time.sleep({})"
    found = two(program.format(0), program.format(0.5)).gate(*BENCH, *WARM_UPS)
    runs = {run.arm: run for run in found.record.programs[0].warm_ups}
    assert runs.keys() == {"base", "head"}
    for run in runs.values():
        assert (run.source, run.rates["command"].unit) == ("whole-run time", "run")
        assert 1 / run.wall_s <= run.rates["command"].mean
    assert runs["head"].rates["command"].mean < 2


def test_a_look_that_will_not_fit_is_not_begun(two) -> None:
    """It is announced what the first verdict takes; then the minutes, enough for a pair or two, are
    not spent on less. That decides nothing, and says so."""
    slow = "import time; time.sleep(0.5); print('throughput: 100')"
    found = two(slow, slow).on_github().gate(*BENCH, "--json", "--max-minutes", "0.1")
    assert (found.code, found.json["verdict"]) == (3, "inconclusive"), found.stderr
    assert "budget" in found.json["workloads"][0]["reason"]
    assert set(found.outputs) == OUTPUTS
    assert not found.record.programs[0].pairs
    assert "does not fit into" in found.stderr
    assert re.search(r"give --max-minutes \d+ or more", found.stderr)


@pytest.mark.parametrize(("asked", "code"), [("fail", 3), ("warn", 0), ("pass", 0)])
def test_what_is_inconclusive_fails_unless_asked_otherwise(asked: str, code: int) -> None:
    options = asked_for("--on-inconclusive", asked)
    record = decided([program([], stopped="spent")], options.inputs, HostEntry(), "ab")
    assert (record.verdict, exit_code(record, options)) == ("inconclusive", code)


TURNS = """
import os, pathlib, time
turns = pathlib.Path(os.environ["TURNS"])
with turns.open("a") as file:
    file.write(".")
if len(turns.read_text()) {when}:
    time.sleep({seconds})
print("throughput: 100")
"""
"""A program that is slow from or at a certain run on, counted over both arms."""


@pytest.mark.slow
def test_a_budget_that_is_spent_after_three_pairs(two) -> None:
    """The eighth run (two warm-ups, three pairs) takes so long that no fourth pair fits."""
    text = TURNS.format(when="== 8", seconds=20)
    repo = two(text, text).on_github()
    repo.env |= {"TURNS": str(repo.out / "turns")}
    found = repo.gate(*BENCH, "--json", "--max-minutes", "0.9")
    assert (found.code, found.json["verdict"]) == (3, "inconclusive"), found.stderr
    assert "the budget of 0.9 minutes was spent" in found.json["workloads"][0]["reason"]
    assert len(found.record.programs[0].pairs) == 3
    assert set(found.outputs) == OUTPUTS
    assert found.outputs["pairs"] == "3"


@pytest.mark.slow
def test_a_run_that_hangs_does_not_outlast_the_budget(two) -> None:
    text = TURNS.format(when=">= 5", seconds=600)
    repo = two(text, text)
    repo.env |= {"TURNS": str(repo.out / "turns")}
    found = repo.gate(*BENCH, "--json", "--max-minutes", "0.3")
    assert found.json["verdict"] in {"error", "no-baseline"}
    assert "timeout" in found.json["workloads"][0]["reason"]
    assert found.record.wall_s < 120


def test_the_budget_begins_after_the_setup(repo, tmp_path, monkeypatch) -> None:
    """An installation of minutes may not eat the pairs: both arms' take longer than the budget."""
    repo.commit({"rate": "100"})
    repo.commit({"x": "1"})
    gate = in_process(repo.path, tmp_path, monkeypatch, modes)
    record = gate(modes.ab, "--setup", "sleep 1.2", "--max-minutes", "0.03")
    assert record.verdict == "pass", record.reason
    assert len(record.programs[0].pairs) == 5


def test_a_run_too_long_to_be_whole_is_told_what_it_needs_before_the_first_pair(two) -> None:
    """The budget ends the first run: what whole runs would take, and that windows are offered."""
    slow = "import time; time.sleep(12); print('throughput: 100')"
    found = two(slow, slow).gate(*BENCH, "--max-minutes", "0.02")
    before = found.stderr.partition("pair 1")[0]
    assert re.search(r"needs --max-minutes \d+ or more", before), found.stderr
    assert "--window" in before


@pytest.mark.parametrize(("arm", "verdict"), [("base", "no-baseline"), ("head", "error")])
def test_a_setup_that_fails(repo, tmp_path, monkeypatch, arm: str, verdict: str) -> None:
    """In base there is no baseline; in head it is an error; neither is a regression."""
    repo.commit({"rate": "100"})
    repo.commit({"x": "1"})
    fails = f'if [ "$GPU_ADVISOR_ARM" = {arm} ]; then echo cannot build; exit 7; fi'
    record = in_process(repo.path, tmp_path, monkeypatch, modes)(modes.ab, "--setup", fails)
    assert record.verdict == verdict
    assert "cannot build" in record.workloads[0].reason


@pytest.mark.slow
def test_a_workload_of_the_settings_file(repo) -> None:
    settings = '[workload.small]\ncommand = "python bench.py"\nunit = "image"\n'
    repo.commit({"bench.py": steady(100), "gpu-advisor.toml": settings})
    repo.commit({"bench.py": steady(90)})
    found = repo.gate("--workload", "small", "--json")
    assert found.code == 1, found.stderr
    assert found.json["workloads"][0]["name"] == "small"
    assert found.json["workloads"][0]["unit"] == "image"


def test_two_workloads_are_both_measured_before_the_verdict(repo, tmp_path, monkeypatch) -> None:
    settings = '[workload.a]\ncommand = "a"\n[workload.b]\ncommand = "b"\n'
    repo.commit({"a.rate": "100", "b.rate": "50", "gpu-advisor.toml": settings})
    repo.commit({"a.rate": "80"})
    record = in_process(repo.path, tmp_path, monkeypatch, modes)(modes.ab, "--workload", "a,b")
    assert record.verdict == "regression"
    assert [entry.program for entry in record.attribution] == ["a"]
    verdicts = {w.name: (w.verdict, w.pairs) for w in record.workloads}
    assert verdicts == {"a": ("regression", 12), "b": ("pass", 5)}


def test_uncommitted_changes_are_head(repo, tmp_path, monkeypatch) -> None:
    """On the default branch itself, local changes are compared with the last commit."""
    repo.commit({"rate": "100"})
    (repo.path / "rate").write_text("80")
    record = in_process(repo.path, tmp_path, monkeypatch, modes)(modes.ab)
    rates = {run.arm: run.rates["command"].mean for run in record.programs[0].warm_ups}
    assert rates == {"base": pytest.approx(100, rel=0.01), "head": pytest.approx(80, rel=0.01)}
    assert record.head.dirty
    assert record.base.sha == repo.git("rev-parse", "HEAD")


@pytest.mark.parametrize(
    "wrong",
    [
        ("--mode", "sometimes"),
        ("--threshold", "five"),
        ("--threshold", "0"),
        ("--threshold", "150%"),
        ("--max-minutes", "-1"),
        ("--max-minutes", "nan"),
        ("--on-inconclusive", "maybe"),
        ("--metric", "vibes"),
        ("--on-invalid", "vibes"),
        ("--enforce", "perhaps"),
    ],
)
def test_wrong_flags_are_usage_errors(wrong: tuple[str, str]) -> None:
    """Each names the flag and the value."""
    with pytest.raises(UsageError, match=wrong[0]) as found:
        asked_for(f"{wrong[0]}={wrong[1]}")
    assert wrong[1] in str(found.value)


def test_what_is_asked_for_and_not_there_is_a_usage_error(repo) -> None:
    repo.commit({"x": "1"})
    with pytest.raises(UsageError, match="no workload 'unknown'"):
        choose(head_checkout(repo.path), ["unknown"], None)
    with pytest.raises(UsageError, match="needs saved runs"):
        modes.MODES["replay"](asked_for("--mode=replay"), None)


OUTPUTS = {
    "verdict", "slowdown-pct", "ci-low-pct", "ci-high-pct", "mde-pct", "pairs",
    "discarded-pairs", "report-json", "report-md",
}  # fmt: skip


def test_a_wrong_call_says_so_once(two) -> None:
    """One message and all outputs; a report that does not pretend to have measured anything."""
    repo = two(steady(100), steady(100)).on_github()
    found = repo.gate(*BENCH, "--threshold", "much")
    assert (found.code, found.stdout) == (2, "")
    assert found.stderr.partition("::error ")[0].count("much") == 1
    assert found.outputs["verdict"] == "error"
    assert set(found.outputs) == OUTPUTS
    text = (found.folder / "gate.md").read_text()
    assert "Nothing was measured" in text
    assert "Pairs" not in text


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
    assert "gpu-advisor-base-" not in repo.git("worktree", "list")


@pytest.mark.parametrize(
    "content", ["", "{}", '{"schema_version": 99}', "\udcff"], ids=["empty", "no", "99", "bytes"]
)
def test_what_is_no_record_is_one_clear_error(tmp_path, content: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(ReportError, match=re.escape(str(path))) as found:
        texts.read(path)
    assert "\n" not in str(found.value)


def test_calibration_says_what_the_runner_can_prove(repo, tmp_path, monkeypatch) -> None:
    repo.commit({"rate": "100"})
    said: list[str] = []
    gate = in_process(repo.path, tmp_path, monkeypatch, modes, said.append)
    record = gate(modes.calibrated, "--mode", "calibrate")
    entry = record.calibration[0]
    assert entry.placebo == "pass"
    assert entry.pairs == 12
    assert entry.noise_pct < 1
    assert entry.pairs_needed == 5
    assert list(entry.provable_pct) == [12, 17, 24]
    assert [line.split(":")[0] for line in report.lines(record).splitlines() if line] == [
        "- **Calibrated**", "- Noise between equal processes of command",
        "- Slowdown that turns red nine times in ten", "- Pairs to pass at 5 %", "- Hardware",
    ]  # fmt: skip
    assert any("12 pairs (about" in line for line in said)


def test_a_mistake_of_our_own_is_an_error_and_no_regression(two) -> None:
    """Python ends with 1 on an exception, and 1 means that a slowdown was proven."""
    repo = two(steady(100), steady(100)).on_github()
    breaks = (
        "import sys; from advisor.gate import modes; from advisor.__main__ import main; "
        "modes.MODES['ab'] = lambda *_: 1 / 0; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", breaks, *repo.command(*BENCH)[3:]]
    done = subprocess.run(
        command, cwd=repo.path, env=repo.environment(), capture_output=True, text=True, check=False
    )
    found = repo.ended(done.returncode, done.stdout, done.stderr)
    assert found.code == 2
    assert "ZeroDivisionError" in found.stderr
    assert found.outputs["verdict"] == "error"
    assert found.record.verdict == "error"


def test_without_git_it_is_one_clear_error(two) -> None:
    repo = two(steady(100), steady(100))
    found = repo.gate(*BENCH, env={"PATH": "/nowhere"})
    assert found.code == 2
    assert "git" in found.stderr
    assert found.stderr.count("\n") == 1
