"""`gpu-advisor profile`: one measured run of a command, with or without a config."""

import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nvml_stub
import psutil
import pytest

from advisor.commands.profile import in_order, whole_memo
from advisor.errors import FAILURE_EXIT_CODES, CommandMissingError, SettingsError, UsageError
from advisor.model import RunPhase
from tests import warm
from tests.runs import a_run
from tests.support.processes import begun

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "tests" / "fixtures" / "programs"
TRAIN = (sys.executable, str(PROGRAMS / "ok_train.py"))
KEYS = {
    "ok", "failure", "unit", "units", "window", "units_per_s", "units_per_s_range", "tokens_per_s",
    "runs", "disturbed", "wait_share", "step_ms", "batch",
    "achieved_tflops", "workers", "ranks", "forwards_per_unit", "peak_mem_gib", "effects",
    "shares", "bottleneck", "unused_gpu", "phases", "host_growth_gib_per_min", "gpu_util_pct",
    "gpu_mem_used_gib", "power_w", "load_note", "notes",
}  # fmt: skip
SETTINGS = """\
[workload.restore]
config = "infer.yaml"
command = "{python} restore.py {{config}}"
unit = "signal"
unit-regex = "restored ([0-9]+)"

[workload.plain]
command = "{python} lines.py"
unit = "picture"
unit-regex = 'wrote (\\d+) files'
"""
RESTORE = """\
import pathlib, re, sys, time
folder = re.search("output_dir: (.+)", pathlib.Path(sys.argv[1]).read_text())[1]
pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
for number in range(1000):
    pathlib.Path(folder, str(number)).touch()
    print("restored 2", flush=True)
    time.sleep(0.005)
"""
LINES = (
    "import time\nfor _ in range({n}):\n    print('wrote 5 files', flush=True); time.sleep(0.005)\n"
)
OPTIONS = ("profile", "--window", "0.5s")
Profile = Callable[..., tuple[int, str, str]]
Measured = Callable[..., dict[str, Any]]

pytest.importorskip("torch")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "infer.yaml").write_text(
        "inference:\n  sampler: {num_inference_steps: 20}\n"
        "  loader:\n    batch_size: 2\n    num_workers: 0\n  n_samples: 4\noutput_dir: results\n"
    )
    (tmp_path / "restore.py").write_text(RESTORE)
    (tmp_path / "lines.py").write_text(LINES.format(n=1000))
    (tmp_path / "gpu-advisor.toml").write_text(SETTINGS.format(python=sys.executable))
    return tmp_path


@pytest.fixture
def profile(project: Path, gpu_advisor: warm.Server) -> Profile:
    """Calls it in the project; returns exit code, stdout and stderr."""

    def call(*words: str) -> tuple[int, str, str]:
        done = gpu_advisor.call(*OPTIONS, *words, cwd=project)
        return done.returncode, done.stdout, done.stderr

    return call


@pytest.fixture
def measured(profile: Profile) -> Measured:
    """The object that `--json` prints of a run that was measured."""

    def call(*words: str) -> dict[str, Any]:
        code, stdout, stderr = profile("--json", *words)
        assert code == 0, stderr
        found: dict[str, Any] = json.loads(stdout)
        assert found.keys() == KEYS
        return found

    return call


@pytest.mark.slow
def test_a_card_is_read_and_one_left_idle_is_the_first_line(project, profile, monkeypatch) -> None:
    """A scripted driver under the real NVML binding, read while the program runs."""
    driver = project / "driver"
    driver.mkdir()
    stub = nvml_stub.build(driver)
    stub.write(nvml_stub.LAPTOP)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in stub.env().items():
        monkeypatch.setenv(name, value)
    code, stdout, stderr = profile("--", *TRAIN)
    assert code == 0, stderr
    first, *others = stdout.splitlines()
    assert first.startswith(f"Your program does not use the {nvml_stub.LAPTOP['name']}: ")
    assert not any("of NVIDIA GeForce" in line for line in others), "its rate is no CPU's"
    code, stdout, stderr = profile("--window", "1s", "--workload", "plain")
    assert code == 0, stderr
    for words in ("GPU 88 % busy", "79.0 W", "not measured: energy_j", "Not Supported"):
        assert words in stdout, stdout


def test_a_config_brings_its_workload_and_is_not_changed(project, measured) -> None:
    text = (project / "infer.yaml").read_bytes()
    found = measured("infer.yaml")
    assert found["ok"] is True
    assert found["failure"] is None
    assert found["unit"] == "signals"
    assert found["window"]["end"] > found["window"]["start"]
    assert found["units"] > 0
    assert found["units"] % 2 == 0
    assert found["units_per_s"] > 0
    assert (project / "infer.yaml").read_bytes() == text
    assert not (project / "results").exists(), "outputs belong into scratch"


def test_a_workload_may_be_named_without_its_config(measured) -> None:
    """Its output lines count where a pattern is given."""
    found = measured("--workload", "plain")
    assert found["unit"] == "pictures"
    assert found["units"] % 5 == 0
    assert found["units"] > 5
    assert found["batch"] is None


@pytest.mark.slow
def test_a_command_alone_is_enough_and_nothing_is_left_behind(project, profile) -> None:
    """The memo begins with the bottleneck, and bounds what would help."""
    before = {path: path.stat().st_mtime_ns for path in project.rglob("*")}
    code, stdout, stderr = profile("--", *TRAIN)
    assert code == 0, stderr
    assert " of the time, at " in stdout.splitlines()[0]
    for title in ("Where the time goes", "at most", "Evidence"):
        assert title in stdout
    assert "samples" in stdout
    assert "batch 16, workers 0" in stdout
    assert "trial 1" in stderr
    assert {p: p.stat().st_mtime_ns for p in before} == before
    assert set(project.rglob("*")) == before.keys()


def test_what_limits_the_figures_stands_beside_the_bottleneck() -> None:
    """An unused card comes before it; others at work come after it."""
    shown = in_order("no card", "bottleneck\n\nparts\n\nevidence\n", "", "others")
    assert shown == "no card\n\nbottleneck\n\nothers\n\nparts\n\nevidence\n"
    assert in_order("", "bottleneck\n\nparts\n", "") == "bottleneck\n\nparts\n"


def test_a_whole_run_names_what_its_steps_wait_for_before_what_is_smaller() -> None:
    """Of an inference that waits, the start is not the first thing to shorten."""
    phases = (
        RunPhase(name="start", seconds=8.8, times=1),
        RunPhase(name="inference", seconds=91.2, times=500),
    )
    run = a_run(phases=phases, wait_share=0.9, peak_host_gib=1.0)
    lines = whole_memo(run).splitlines()
    assert [line.split() for line in lines if "waiting for data  " in line] == [
        ["waiting", "for", "data", "82", "%"]
    ]
    helps = lines[lines.index("What would help, the costliest first") + 1 :]
    assert helps[0].startswith("  waiting for data, 82 %: more loader workers")
    assert helps[1].startswith("  start, 8.8 %: ")


def test_each_phase_of_a_whole_run_has_its_time(project, measured, monkeypatch) -> None:
    """No less than the program slept in it; all but borders of what its own clocks add up to.

    A phase that was told under another's name would leave its own too short. That each agrees
    with its clock is no test: a host that stalls at a border is one phase's or the other's.
    """
    monkeypatch.setenv("GPU_ADVISOR_ISOLATION", "guard")  # its clocks are a file that stays
    program = (sys.executable, str(PROGRAMS / "ok_epochs.py"), "clocks.json")
    found = measured("--whole", "60s", "--", *program)
    phases = {phase["name"]: phase for phase in found["phases"]}
    wrote = json.loads((project / "clocks.json").read_text())
    assert phases.keys() == {*wrote["slept_s"], "start", "ending"}
    inside = {name: phases[name]["seconds"] for name in wrote["slept_s"]}
    for name, slept_s in wrote["slept_s"].items():
        assert inside[name] >= 0.9 * slept_s, name  # the first step's is in the start
    assert sum(inside.values()) <= wrote["seconds"]
    wrote["times"]["training"] -= 1  # the first step ends the start
    assert {name: phases[name]["times"] for name in inside} == wrote["times"]


def test_a_failure_has_its_own_code_and_the_object_is_printed_all_the_same(profile) -> None:
    program = (sys.executable, "-c", "import package_that_nobody_has")
    code, stdout, _ = profile("--json", "--", *program)
    assert code == FAILURE_EXIT_CODES["crash-import"]
    found = json.loads(stdout)
    assert found["ok"] is False
    assert found["failure"]["kind"] == "crash-import"
    assert found["failure"]["evidence"]
    assert found["failure"]["next_step"]


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        ((), CommandMissingError.exit_code, "restore, plain"),
        (("--workload", "nobody"), SettingsError.exit_code, "restore, plain"),
        (("infer.yaml", "--", "python", "x.py"), CommandMissingError.exit_code, "does not exist"),
        (("--window", "soon", "--", "true"), UsageError.exit_code, "--window"),
    ],
)
def test_what_cannot_be_run_is_refused_with_one_sentence(profile, words, code, expected) -> None:
    found, stdout, stderr = profile(*words)
    assert found == code, stderr
    assert expected in stderr
    assert stdout == ""


def words_of(process: psutil.Process) -> list[str]:
    """Command line; empty once it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_ctrl_c_ends_the_program_and_says_so(project) -> None:
    words = (*OPTIONS, "--json", "--window", "60s", "--", *TRAIN)
    running = begun(sys.executable, "-m", "advisor", *words, cwd=project)
    tool = psutil.Process(running.pid)
    while not any(TRAIN[1] in words_of(child) for child in tool.children(recursive=True)):
        assert running.poll() is None
        time.sleep(0.05)
    time.sleep(1.0)  # a signal while the program is being started ends the call without JSON
    running.send_signal(signal.SIGINT)
    stdout, _ = running.communicate(timeout=60)
    assert running.returncode == FAILURE_EXIT_CODES["interrupted"]
    assert json.loads(stdout)["failure"]["kind"] == "interrupted"
    left = [p for p in psutil.process_iter(["cwd"]) if p.info["cwd"] == str(project)]
    assert not left
