"""The gate as a user calls it: real repositories, real processes, real exit codes."""

import dataclasses
import json
import os
import re
import signal
import sys
import threading
import time

import jsonschema
import pytest

from advisor.errors import GATE_EXIT_CODES, InterruptedByUserError, ReportError
from advisor.gate import report
from advisor.gate.checkout import Checkout
from advisor.gate.cli import exit_code
from advisor.gate.schema import GateRecord, Inputs, Revision
from advisor.gate.setup_step import set_up
from advisor.gate.verdict import why_discard
from advisor.sandbox.capabilities import FORCED
from tests import nvml_stub
from tests.gate.repos import OUTPUTS, ROOT, STEADY, WARM_UPS, fork_event
from tests.support.processes import begun, ran

pytestmark = pytest.mark.slow

BENCH = ("--command", "python bench.py")
SETUP_LOG = "echo $GPU_ADVISOR_ARM $PWD >> $GPU_ADVISOR_HEAD/../out/setup.log"
FAILS = "raise SystemExit(3)"


def steady(rate: float) -> str:
    return STEADY.format(rate=rate)


GATES: dict[str, tuple[str, str, tuple[str, ...], int]] = {
    "pass": (steady(100), steady(99), ("--setup", SETUP_LOG), 5),
    "regression": (steady(100), steady(90), (), 12),
    "inconclusive": (steady(100), steady(100), WARM_UPS, 0),
    "no-baseline": (FAILS, steady(100), (), 0),
    "invalid": (steady(100), steady(99), ("--command", "python {head}/bench.py"), 0),
    "error": (steady(100), FAILS, (), 0),
}
"""Base, head and flags that come to each verdict, and the pairs that it takes."""


@pytest.mark.parametrize("verdict", GATE_EXIT_CODES)
def test_each_verdict_sets_outputs_and_exit_code_and_leaves_its_report_alone(two, verdict) -> None:
    """No worktree, no branch, no file in the checkout."""
    base, head, flags, pairs = GATES[verdict]
    repo = two(base, head).on_github()
    found = repo.gate(*BENCH, *(word.format(head=repo.path) for word in flags))
    assert found.code == GATE_EXIT_CODES[verdict], found.stderr
    assert found.record.verdict == verdict
    assert found.record.pairs == pairs
    assert found.outputs["verdict"] == verdict
    assert found.outputs.keys() == OUTPUTS
    assert found.record.base.sha == repo.git("rev-parse", "HEAD^")
    assert found.summary.startswith("# Throughput: ")
    assert report.title(found.record) in found.stdout
    assert f"\n::{'error' if found.code else 'notice'} title=" in found.stderr
    raw = json.loads((found.folder / "gate.json").read_text())
    jsonschema.validate(raw, json.loads((ROOT / "docs" / "gate.schema.json").read_text()))
    for name in ("gate.md", "gate-comment.md"):
        assert (found.folder / name).stat().st_size > 100
    assert len(repo.git("worktree", "list").splitlines()) == 1
    assert repo.git("branch", "--list") == "* main"
    assert repo.git("status", "--porcelain", "--ignored") == ""
    if verdict == "pass":
        assert found.record.slowdown_pct == pytest.approx(1, abs=0.3)
        assert found.record.workloads[0].source == "throughput line"
        setups = [line.split() for line in (repo.out / "setup.log").read_text().splitlines()]
        assert [arm for arm, _ in setups] == ["base", "head"]
        assert setups[0][1] != setups[1][1]


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
def test_the_exit_code_follows_verdict_and_flags(verdict, asked, *, bisect, code) -> None:
    record = GateRecord(verdict=verdict, reason="", inputs=Inputs(on_inconclusive=asked))
    assert exit_code(record, bisect=bisect) == code


def test_the_whole_run_counts_where_no_rate_is_seen(two) -> None:
    program = "import time; time.sleep({})"
    found = two(program.format(0), program.format(0.5)).gate(*BENCH, *WARM_UPS)
    runs = {run.arm: run for run in found.record.programs[0].warm_ups}
    for run in runs.values():
        assert run.source == "whole-run time"
        assert run.rates["command"].unit == "run"
    assert runs["head"].rates["command"].mean < 2


def test_a_slow_head_that_prints_much_is_found(two) -> None:
    """Megabytes of output after the rate hide it no more than a few lines would."""
    much = "print('nothing of note\\n' * 350_000)\n"
    found = two(steady(100), f"print('throughput: 100')\n{much}{steady(50)}{much}").gate(
        *BENCH, *WARM_UPS
    )
    assert found.warm_up_rates == {"base": 100, "head": 50}


def test_a_generic_benchmark_file_is_read(two) -> None:
    write = """
import json, os
values = [{{"name": "fps", "value": {}, "unit": "frame"}}]
json.dump(values, open(os.environ["GPU_ADVISOR_BENCHMARK_JSON"], "w"))
"""
    found = two(write.format(100), write.format(50)).gate(*BENCH, *WARM_UPS)
    assert found.warm_up_rates == {"base": 100, "head": 50}


def test_workloads_of_the_settings_file_with_bounds_of_base(repo) -> None:
    """Head loosens its own bound, which is read in base."""
    settings = '[workload.a]\ncommand = "python a.py"\nunit = "image"\n{}'
    bound = '[workload.a.gate]\nthroughput = "{}"\n'
    repo.commit({"a.py": steady(100), "gpu-advisor.toml": settings.format(bound.format("3%"))})
    repo.commit({"a.py": steady(60), "gpu-advisor.toml": settings.format(bound.format("90%"))})
    found = repo.gate("--workload", "a")
    (workload,) = found.record.workloads
    assert workload.verdict == "regression", found.stderr
    assert workload.threshold == 0.03, found.stderr
    assert workload.name == "a"
    assert workload.unit == "image"


def test_uncommitted_changes_are_head(repo) -> None:
    repo.commit({"bench.py": steady(100)})
    (repo.path / "bench.py").write_text(steady(80))
    found = repo.gate(*BENCH, *WARM_UPS)
    assert found.warm_up_rates == {"base": 100, "head": 80}
    assert found.record.head.dirty
    assert found.record.base.sha == repo.git("rev-parse", "HEAD")


def test_head_against_itself_measures_the_noise(repo) -> None:
    repo.commit({"bench.py": steady(100)})
    found = repo.gate(*BENCH, "--base-ref", "HEAD")
    (noise,) = found.record.workloads
    assert found.record.mode == "noise"
    assert noise.verdict == "pass"
    assert len(found.record.programs[0].pairs) == 12
    assert noise.noise_pct < 1
    assert "smallest threshold that equal code passes: --threshold 1%" in found.stdout


def test_a_history_grows_and_is_compared(repo) -> None:
    repo.commit({"bench.py": steady(100)})
    path = repo.out / "history.json"
    found = repo.gate(*BENCH, "--history", str(path), "--on-inconclusive", "warn")
    assert found.code == 0, found.stderr
    assert found.record.verdict == "no-baseline", found.stderr
    kept = json.loads(path.read_text())
    (session,) = kept["sessions"]
    kept["sessions"] = [{**session, "value": 200 + n / 10} for n in range(12)]
    path.write_text(json.dumps(kept))
    found = repo.gate(*BENCH, "--history", str(path))
    assert found.code == 1, found.stderr
    assert found.record.verdict == "regression", found.stderr


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
    assert found.warm_up_rates == {"base": 100, "head": 50}


def test_git_runs_no_program_of_the_repository(two) -> None:
    """Hooks, the monitor and filters, in the repository's own settings and in the user's."""
    repo = two(steady(100), steady(100))
    ran, home, program = repo.out / "ran", repo.out / "home", repo.path / "program.sh"
    for path in (program, repo.path / ".git" / "hooks" / "post-checkout"):
        path.write_text(f"#!/bin/sh\necho $0 $1 >> {ran}\ncat\n")
        path.chmod(0o755)
    repo.commit({".gitattributes": "*.py filter=own\n"})
    (repo.path / "bench.py").write_text(steady(99))
    home.mkdir()
    (home / ".gitconfig").write_text(f'[filter "own"]\nclean = {program}\nsmudge = {program}\n')
    for name in ("clean", "smudge", "process"):
        repo.git("config", f"filter.own.{name}", str(program))
    repo.git("config", "filter.own.required", "true")
    repo.git("config", "core.fsmonitor", str(program))
    repo.env["HOME"] = str(home)
    found = repo.gate(*BENCH, *WARM_UPS)
    assert found.record.verdict == "inconclusive", found.stderr
    assert not ran.exists(), ran.read_text()


@pytest.mark.parametrize(
    "wrong",
    [
        "--threshold=five", "--threshold=0", "--threshold=150%", "--max-minutes=-1",
        "--max-minutes=nan", "--on-inconclusive=maybe", "--keep-network=perhaps",
        "--mode=foo", "--base-ref=HEAD --history=x",
    ],
)  # fmt: skip
def test_a_wrong_argument_touches_no_file(repo, wrong) -> None:
    """Not even a report of an earlier gate, nor the outputs: the action sets their defaults."""
    repo.on_github()
    places = [repo.out / name for name in ("gate.md", "gate.json", "output")]
    for path in places:
        path.write_text("earlier")
    found = repo.gate(*BENCH, *wrong.split())
    assert found.code == 2
    assert found.stdout == ""
    assert wrong.partition("=")[0] in found.stderr
    assert {path.read_text() for path in places} == {"earlier"}


def test_the_flags_fit_on_a_page(repo) -> None:
    flags = set(re.findall(r"^  (--[a-z-]+)", repo.gate("--help").stdout, re.MULTILINE))
    assert 0 < len(flags - {"--debug", "--help"}) <= 16, flags


@pytest.mark.parametrize(
    ("words", "event", "env", "said"),
    [
        (("--workload", "unknown"), {}, {}, "no workload 'unknown'"),
        (BENCH, {}, {"PATH": "/nowhere"}, "git"),
        ((*BENCH, "--setup", "touch ran"), fork_event(), {}, "fork"),
    ],
    ids=["workload", "git", "fork"],
)
def test_what_cannot_be_measured_is_one_clear_error(repo, words, event, env, said) -> None:
    """Nothing of it was run."""
    repo.commit({"bench.py": "open('ran', 'w')"})
    found = repo.on_github(event, **env).gate(*words)
    assert found.code == 2
    assert found.outputs["verdict"] == "error"
    (line,) = (line for line in found.stderr.splitlines() if line.startswith("gpu-advisor: "))
    assert said in line
    assert not (repo.path / "ran").exists()


@pytest.mark.parametrize(
    "content", ["", "{}", '{"schema_version": 99}', "\udcff"], ids=["empty", "no", "99", "bytes"]
)
def test_a_file_that_is_no_record_is_one_clear_error(tmp_path, content) -> None:
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
    found = repo.run([sys.executable, "-c", breaks, *repo.words(*BENCH)])
    assert found.code == 2
    assert "ZeroDivisionError" in found.stderr
    assert found.outputs["verdict"] == found.record.verdict == "error"


def alive(marker: str) -> bool:
    return not ran("pgrep", "-f", marker).returncode


def test_a_look_that_does_not_fit_is_not_begun(two) -> None:
    # five pairs sleep for 40 s; the warm-ups have 30 s for 8 s of sleep
    slow = "import time; time.sleep(4); print('throughput: 100')"
    found = two(slow, slow).gate(*BENCH, "--max-minutes", "0.5", "--bisect-exit")
    assert found.code == 125, found.stderr
    assert found.record.verdict == "inconclusive", found.stderr
    assert not found.record.programs[0].pairs
    assert re.search(r"budget .* Give --max-minutes \d+ or more", found.record.reason)


TURNS = """
import os, pathlib, time
turns = pathlib.Path(os.environ["TURNS"])
with turns.open("a") as file:
    file.write(".")
if len(turns.read_text()) >= 3:  # the first after the warm-ups
    time.sleep(600)
print("throughput: 100")
"""


def test_a_run_that_hangs_does_not_outlast_the_budget(two) -> None:
    repo = two(TURNS, TURNS)
    repo.env |= {"TURNS": str(repo.out / "turns")}
    found = repo.gate(*BENCH, "--max-minutes", "0.3")
    assert found.record.verdict in {"error", "no-baseline"}
    assert "timeout" in found.record.workloads[0].reason
    assert found.record.wall_s < 120


@pytest.mark.parametrize(("arm", "verdict"), [("base", "no-baseline"), ("head", "error")])
def test_a_setup_that_fails_shows_its_code_and_last_lines(two, arm, verdict) -> None:
    fails = f'if [ "$GPU_ADVISOR_ARM" = {arm} ]; then seq 100; echo cannot build >&2; exit 7; fi'
    found = two(steady(100), steady(100)).gate(*BENCH, *WARM_UPS, "--setup", fails)
    assert found.record.verdict == verdict
    reason = found.record.workloads[0].reason
    assert "exit code 7" in reason
    assert "cannot build" in reason
    assert len(reason.splitlines()) == 20


def test_a_setup_leaves_nothing_running(tmp_path, monkeypatch) -> None:
    """Neither at its limit nor after an interruption."""
    monkeypatch.setenv(FORCED, "guard")
    checkout, cancel = Checkout(top=tmp_path, cwd=tmp_path, revision=Revision()), threading.Event()
    marker = f"sleep 31.{os.getpid()}"

    def ran(limit_s: float) -> str | None:
        return set_up(
            checkout, f"({marker} &) ; {marker}", {},
            scratch=tmp_path / f"{limit_s:g}", limit_s=limit_s, cancel=cancel,
        )  # fmt: skip

    assert "did not end" in (ran(0.5) or "")
    threading.Timer(0.5, cancel.set).start()
    with pytest.raises(InterruptedByUserError):
        ran(60)
    assert not alive(marker)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_ends_with_a_partial_report(two, number) -> None:
    """Exit code 4, outputs set, pairs so far kept, no process of the program left."""
    marker = f"gate-signal-test-{os.getpid()}-{number}"
    slow = "import time; time.sleep(3); print('throughput: 1')"
    repo = two(slow, slow).on_github()
    command = repo.command("--command", f"python bench.py {marker}")
    with begun(*command, cwd=repo.path, env=repo.environment()) as gate:
        assert any("pair 1" in line for line in gate.stderr)
        time.sleep(0.5)
        gate.send_signal(number)
        stdout, stderr = gate.communicate()
    found = repo.ended(gate.returncode, stdout, stderr)
    assert found.code == 4, stderr
    assert found.outputs["verdict"] == "invalid", stderr
    assert len(found.record.programs[0].pairs) == 1
    assert "Interrupted" in found.record.reason
    assert not alive(marker)


# Head scripts the driver while it runs, as a sick card would change by itself.
THROTTLED = """
import os, pathlib, time
script = pathlib.Path(os.environ["NVML_STUB_SCRIPT"])
original = script.read_text()
def say(text):  # no reading may see a half of it
    draft = script.with_name("draft")
    draft.write_text(text)
    draft.replace(script)
if os.environ["GPU_ADVISOR_ARM"] == "head":
    say(original + "events 0x20\\nclock.sm 1890\\n")
began = int(pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
age = time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf("SC_CLK_TCK")
time.sleep(0.4 + 3 * age)  # most of the run, whose median counts, however slow its start was
say(original)
print("throughput:", 100 + os.getpid() % 7 / 100)
"""


def test_a_throttled_card_is_invalid_and_says_why(two, tmp_path) -> None:
    """Its reasons and its clock are read in each run; either would discard the pair."""
    repo = two(THROTTLED, THROTTLED)
    repo.env |= nvml_stub.build(tmp_path / "nvml").env(repo.env)
    found = repo.gate(*BENCH)
    assert found.code == 4, found.stderr
    assert found.record.verdict == "invalid", found.stderr
    assert "software thermal slowdown" in found.record.workloads[0].reason
    assert found.record.host.gpus[0].name == "NVIDIA H100 80GB HBM3"
    pair = found.record.programs[0].pairs[0]
    assert pair.base.gpu.sm_clock_mhz == 1980
    assert pair.head.gpu.sm_clock_mhz == 1890
    clock_alone = dataclasses.replace(pair.head.gpu, event_reasons=())
    assert "SM clock of head was" in (why_discard(pair.base.gpu, clock_alone) or "")


def test_two_gates_on_one_card_wait_for_each_other(two, tmp_path) -> None:
    repo = two(THROTTLED, THROTTLED)
    repo.env |= nvml_stub.build(tmp_path / "nvml").env(repo.env)
    with begun(*repo.command(*BENCH), cwd=repo.path, env=repo.environment()) as first:
        assert any("warming up" in line for line in first.stderr)
        first.send_signal(signal.SIGSTOP)  # so that it holds the card however slow the second is
        second = repo.gate(*BENCH, "--max-minutes", "0.02")
        first.terminate()
        first.send_signal(signal.SIGCONT)
        first.communicate()
    assert second.code == 4
    assert "Another gpu-advisor" in second.stderr
    assert "Waiting" in second.stderr
