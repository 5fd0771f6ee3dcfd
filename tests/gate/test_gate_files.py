"""The gate's own files: claimed before anything runs, whole, never over what it did not write.

Most of these gates replay a saved record: no process is measured.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gate_engine import asked_for
from gate_examples import around, program_of

from advisor.errors import OutputRefusedError, ReportError, UsageError
from advisor.gate import history, modes, report, texts
from advisor.gate import replay as saved_runs
from advisor.gate.records import HostEntry, Inputs
from advisor.gate.workbench import Place, decided
from tests.gate.repos import STEADY

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.gate.entries import ProgramEntry
    from tests.gate.repos import Repo

NAMES = (
    "gate.md",
    "gate.json",
    "gate-comment.md",
    "gate-figures/gate-pairs.svg",
    "gate-figures/gate-workloads.svg",
)
SECRET = "q7Zp2mXw9Lr4"


@pytest.fixture
def saved(repo: Repo) -> Path:
    """A record of an earlier gate, outside the place of the next report."""
    program = program_of(around(100), around(90))
    program = program.model_copy(update={"command": f"python t.py --api-key {SECRET}"})
    found = decided([program], Inputs(), HostEntry(cpu="test", cpus=2), "ab")
    path = repo.out / "saved.json"
    path.write_text(texts.dump(found))
    return path


def replay(repo: Repo, saved: Path, *args: str, **env: str):
    return repo.gate("--mode", "replay", "--replay", str(saved), *args, env=env)


def test_every_file_of_a_gate_carries_the_mark_and_is_replaced_by_the_next(
    repo: Repo, saved: Path
) -> None:
    for _ in range(2):
        assert replay(repo, saved).code == 1
    for name in NAMES:
        assert "gpu-advisor" in (repo.out / name).read_text()
    wrong = replay(repo, saved, "--threshold", "none")
    assert wrong.code == 2
    assert wrong.record.verdict == "error"
    assert not (repo.out / NAMES[3]).exists(), "a figure of another gate beside this one's report"


def test_a_file_of_the_users_stays_and_is_told_of_before_anything_runs(
    two: Callable[..., Repo],
) -> None:
    """Exit 2, never that of a verdict; --overwrite is the consent."""
    repo = two(STEADY.format(rate=100), STEADY.format(rate=100)).on_github()
    mine = repo.out / NAMES[-1]
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine\n")
    found = repo.gate("--command", "python bench.py")
    assert found.code == 2
    assert "was not written by gpu-advisor" in found.stderr
    assert "warming up" not in found.stderr
    assert found.outputs["verdict"] == "error"
    assert mine.read_text() == "mine\n"
    others = {str(path.relative_to(repo.out)) for path in repo.out.rglob("*") if path.is_file()}
    assert others.isdisjoint(NAMES[:-1])


@pytest.mark.parametrize("name", NAMES)
def test_each_place_of_a_report_is_looked_at(tmp_path: Path, name: str) -> None:
    mine = tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine\n")
    with pytest.raises(OutputRefusedError, match="was not written by gpu-advisor"):
        report.claim(tmp_path / "gate.md")


def test_overwrite_is_the_consent(repo: Repo, saved: Path) -> None:
    (repo.out / "gate.md").write_text("mine\n")
    assert replay(repo, saved, "--overwrite").code == 1
    assert "mine" not in (repo.out / "gate.md").read_text()


def test_a_record_that_is_replayed_is_never_the_place_of_the_report(
    repo: Repo, saved: Path
) -> None:
    """Nor is a file of benchmark runs, or the history; under no name, whatever was allowed."""
    assert replay(repo, saved).code == 1
    before = (repo.out / "gate.json").read_bytes()
    (repo.out / "other.json").hardlink_to(repo.out / "gate.json")
    place = repo.out / "gate.json"
    for flag in ("--replay", "--base-runs", "--head-runs", "--history"):
        found = repo.gate("--mode", "replay", flag, str(place), "--overwrite")
        assert found.code == 2
        assert "Name another place" in found.stderr
    with pytest.raises(OutputRefusedError, match="Name another place"):
        report.claim(repo.out / "gate.md", never=[repo.out / "other.json"], overwrite=True)
    assert place.read_bytes() == before


def test_no_link_is_followed_to_a_file_of_the_users(repo: Repo, saved: Path) -> None:
    """A link to where nothing is, or to a file of ours, is followed, as everywhere."""
    mine = repo.out / "mine.md"
    mine.write_text("mine\n")
    (repo.out / "gate.md").symlink_to(mine)
    assert replay(repo, saved).code == 2
    assert mine.read_text() == "mine\n"


@pytest.mark.parametrize(
    "name", ["pipe.md", "folder.md", "socket.md", "loop.md", "file/x.md", "x.json"]
)
def test_what_is_no_place_for_a_report_is_a_sentence(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "loop.md").symlink_to("loop.md")
    (tmp_path / "file").touch()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket.md"))
        with pytest.raises(OutputRefusedError) as found:
            report.claim(tmp_path / name)
    assert "\n" not in str(found.value)


def _runs(path: Path) -> ProgramEntry:
    return saved_runs.from_benchmarks([path], [path])


@pytest.mark.parametrize("read", [texts.read, _runs, history.read], ids=["record", "runs", "past"])
@pytest.mark.parametrize("name", ["/dev/zero", "pipe", "."])
def test_what_is_read_must_have_an_end(tmp_path: Path, name: str, read: Callable) -> None:
    """A record, runs of benchmarks, a history."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ReportError) as found:
        read(tmp_path / name)
    assert "\n" not in str(found.value)


def test_a_history_goes_over_no_other_file(tmp_path: Path) -> None:
    """Whether it is read first, or not."""
    mine = tmp_path / "mine.json"
    mine.write_text('{"batch_size": 1}')
    with pytest.raises(ReportError, match="no history"):
        history.read(mine)
    with pytest.raises(OutputRefusedError):
        history.claim(mine)


def test_no_secret_is_left_in_what_a_gate_writes_or_prints(repo: Repo, saved: Path) -> None:
    found = replay(repo.on_github(), saved)
    left = [path for path in repo.out.rglob("*") if path.is_file() and path != saved]
    assert [path for path in left if SECRET in path.read_text()] == []
    assert SECRET not in found.stdout + found.stderr
    assert found.record.programs[0].command == "python t.py --api-key ***"


def test_files_of_the_job_are_appended_to_and_nothing_else_is_touched(
    repo: Repo, saved: Path
) -> None:
    """They may hold what an earlier command of the step wrote. What is no file fails the step."""
    summary, mine = repo.out / "summary", repo.out / "mine"
    summary.write_text("earlier\n")
    mine.write_text("mine\n")
    repo.on_github()
    assert replay(repo, saved).summary.startswith("earlier\n# Throughput gate")
    summary.unlink()
    summary.symlink_to(mine)
    (repo.out / "output").unlink()
    os.mkfifo(repo.out / "pipe")
    found = replay(repo, saved, "--threshold", "50%", GITHUB_OUTPUT=str(repo.out / "pipe"))
    assert mine.read_text() == "mine\n"
    assert (found.code, found.record.verdict) == (2, "pass")
    assert found.stderr.count("could not be written") == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system needs root")
def test_a_full_disk_leaves_the_report_before_whole(repo: Repo, saved: Path) -> None:
    import subprocess

    place = repo.out / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)], check=True)
    try:
        report = ("--report", str(place / "gate.md"))
        assert replay(repo, saved, *report).code == 1
        before = (place / "gate.json").read_bytes()
        with contextlib.suppress(OSError):
            (place / "filler").write_bytes(bytes(1 << 20))
        found = replay(repo, saved, *report)
        assert found.code == 2
        assert "No space left" in found.stderr
        assert (place / "gate.json").read_bytes() == before
        assert {path.name for path in place.iterdir()} == {
            "filler", "gate.md", "gate.json", "gate-comment.md", "gate-figures",
        }  # fmt: skip
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_report_that_was_closed_to_others_stays_closed(repo: Repo, saved: Path) -> None:
    replay(repo, saved)
    for name in NAMES[:3]:
        (repo.out / name).chmod(0o600)
    replay(repo, saved)
    assert {stat.S_IMODE((repo.out / name).stat().st_mode) for name in NAMES[:3]} == {0o600}


BENCHMARK = '{"datetime": "2026-01-01T00:00:0%d+00:00", "benchmarks": [%s]}'


@pytest.mark.parametrize("copied", [False, True], ids=["one file", "copies"])
def test_one_run_does_not_count_as_seven(tmp_path: Path, copied: bool) -> None:
    """Seven names of one process would prove anything."""
    stats = '{"fullname": "b.py::test_x", "stats": {"mean": 0.5}}'
    files = []
    for number in range(14):
        files.append(tmp_path / f"run{number}.json")
        first = number % 7 == 0 or not copied
        files[-1].write_text(BENCHMARK % (number // 7 if copied or first else number, stats))
    given = [files[number if copied else number // 7] for number in range(14)]
    with pytest.raises(UsageError, match="one process counts once"):
        saved_runs.from_benchmarks(given[:7], given[7:])


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--replay", "saved.json"), "--mode replay"),
        (("--base-runs", "a.json", "--head-runs", "b.json"), "--mode replay"),
        (("--max-minutes", "1_000"), "without separators"),
        (("--max-minutes", "1,000"), "without separators"),
        (("--threshold", "1_0%"), "write 5%"),
    ],
)
def test_what_does_not_fit_together_is_a_sentence(flags: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError) as found:
        asked_for("--command", "python bench.py", *flags)
    assert said in str(found.value)
    assert "\n" not in str(found.value)


def test_a_report_that_is_a_folder_is_a_sentence(repo: Repo, saved: Path) -> None:
    """With all outputs, which name no file, and the summary."""
    found = replay(repo.on_github(), saved, "--report", ".")
    assert found.code == 2
    assert "is a folder; name a file in it" in found.stderr
    assert "Traceback" not in found.stderr
    assert (found.outputs["report-md"], found.outputs["verdict"]) == ("", "error")
    assert "Throughput gate" in found.summary


@pytest.mark.parametrize("place", ["..", "/", "out/"])
def test_no_folder_is_a_report(tmp_path, monkeypatch, place: str) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputRefusedError, match="is a folder; name a file in it"):
        report.claim(Path(place))


@pytest.mark.parametrize("place", [".", "/proc/nowhere/h.json", "bench.py/h.json"])
def test_a_history_that_cannot_be_written_is_a_sentence_before_anything_runs(
    repo: Repo, tmp_path, monkeypatch, place: str
) -> None:
    """Also before there is an engine: the machine is not held for it."""
    repo.commit({"bench.py": "x"})
    monkeypatch.chdir(repo.path)
    monkeypatch.setattr(modes, "machine_to_itself", lambda *_: pytest.fail("it was begun"))
    nowhere = Place(cwd=repo.path, scratch=tmp_path, cancel=threading.Event(), say=str)
    asked = asked_for("--command", "x", "--mode", "history", "--history", place)
    with pytest.raises((OutputRefusedError, ReportError)) as found:
        modes.with_history(asked, nowhere)
    assert "\n" not in str(found.value)
