"""The gate's own files: claimed before anything runs, whole, never over what it did not write.

Most of these gates replay a saved record: no process is measured.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from typing import TYPE_CHECKING

import pytest
from gate_examples import around, program_of

from advisor.gate import texts
from advisor.gate.records import HostEntry, Inputs
from advisor.gate.workbench import decided
from tests.gate.repos import STEADY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_the_users_stays_and_is_told_of_before_anything_runs(
    two: Callable[..., Repo], name: str
) -> None:
    """Exit 2, never that of a verdict; --overwrite is the consent."""
    repo = two(STEADY.format(rate=100), STEADY.format(rate=100)).on_github()
    mine = repo.out / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine\n")
    found = repo.gate("--command", "python bench.py")
    assert found.code == 2
    assert "was not written by gpu-advisor" in found.stderr
    assert "warming up" not in found.stderr
    assert found.outputs["verdict"] == "error"
    assert mine.read_text() == "mine\n"
    others = {str(path.relative_to(repo.out)) for path in repo.out.rglob("*") if path.is_file()}
    assert others.isdisjoint(set(NAMES) - {name})


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
    for name in ("gate.json", "other.json"):
        found = replay(repo, repo.out / name, "--overwrite")
        assert found.code == 2
        assert "Name another place" in found.stderr
    for flag in ("--base-runs", "--history"):
        found = repo.gate("--mode", "replay", flag, str(repo.out / "gate.json"), "--overwrite")
        assert found.code == 2
    assert (repo.out / "gate.json").read_bytes() == before


def test_no_link_is_followed_to_a_file_of_the_users(repo: Repo, saved: Path) -> None:
    """A link to where nothing is, or to a file of ours, is followed, as everywhere."""
    mine = repo.out / "mine.md"
    mine.write_text("mine\n")
    (repo.out / "gate.md").symlink_to(mine)
    assert replay(repo, saved).code == 2
    assert mine.read_text() == "mine\n"
    (repo.out / "loop.md").symlink_to("loop.md")
    assert replay(repo, saved, "--report", str(repo.out / "loop.md")).code == 2


def test_what_is_no_place_for_a_report_is_a_sentence(repo: Repo, saved: Path) -> None:
    os.mkfifo(repo.out / "pipe.md")
    (repo.out / "folder.md").mkdir()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(repo.out / "socket.md"))
    for name in ("pipe.md", "folder.md", "socket.md", "saved.json/x.md", "x.json"):
        found = replay(repo, saved, "--report", str(repo.out / name))
        assert found.code == 2, name
        assert "Traceback" not in found.stderr
        assert found.stderr.count("\n") == 1, found.stderr
    listening.close()


def test_what_is_read_must_have_an_end(repo: Repo) -> None:
    """A record, runs of benchmarks, a history."""
    os.mkfifo(repo.out / "pipe")
    repo.commit({"bench.py": "print('throughput: 1')"})
    for name in ("/dev/zero", str(repo.out / "pipe"), str(repo.out)):
        for call in (
            ("--mode", "replay", "--replay", name),
            ("--mode", "replay", "--base-runs", name, "--head-runs", name),
            ("--mode", "history", "--command", "python bench.py", "--history", name),
        ):
            found = repo.gate(*call)
            assert found.code == 2, call
            assert "Traceback" not in found.stderr


def test_a_history_goes_over_no_other_file(repo: Repo) -> None:
    repo.commit({"bench.py": STEADY.format(rate=100)})
    mine = repo.out / "mine.json"
    mine.write_text('{"batch_size": 1}')
    call = ("--mode", "history", "--command", "python bench.py", "--history", str(mine))
    found = repo.gate(*call, "--overwrite")
    assert found.code == 2
    assert "no history" in found.stderr
    assert mine.read_text() == '{"batch_size": 1}'


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
def test_one_run_does_not_count_as_seven(repo: Repo, copied: bool) -> None:
    """Seven names of one process would prove anything."""
    stats = '{"fullname": "b.py::test_x", "stats": {"mean": 0.5}}'
    files = []
    for number in range(14):
        files.append(repo.out / f"run{number}.json")
        first = number % 7 == 0 or not copied
        files[-1].write_text(BENCHMARK % (number // 7 if copied or first else number, stats))
    names = [str(files[number if copied else number // 7]) for number in range(14)]
    runs = ("--base-runs", *names[:7], "--head-runs", *names[7:])
    found = repo.gate("--mode", "replay", *runs)
    assert (found.code, found.record.verdict) == (2, "error")
    assert "one process counts once" in found.stderr


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
def test_what_does_not_fit_together_is_a_sentence(
    repo: Repo, flags: tuple[str, ...], said: str
) -> None:
    repo.commit({"bench.py": "open('ran', 'w')"})
    found = repo.gate("--command", "python bench.py", *flags)
    assert found.code == 2
    assert said in found.stderr
    assert "Traceback" not in found.stderr
    assert not (repo.path / "ran").exists()


@pytest.mark.parametrize("place", [".", "..", "/", "out/"])
def test_a_report_that_is_a_folder_is_a_sentence(repo: Repo, saved: Path, place: str) -> None:
    """With outputs that name no file."""
    repo.on_github()
    (repo.path / "out").mkdir()
    found = replay(repo, saved, "--report", place)
    assert found.code == 2
    assert "is a folder; name a file in it" in found.stderr
    assert "Traceback" not in found.stderr
    assert (found.outputs["report-md"], found.outputs["verdict"]) == ("", "error")


@pytest.mark.parametrize("place", [".", "/proc/nowhere/h.json", "bench.py/h.json"])
def test_a_history_that_cannot_be_written_is_a_sentence_before_anything_runs(
    repo: Repo, place: str
) -> None:
    repo.commit({"bench.py": "open('ran', 'w')"})
    found = repo.gate("--command", "python bench.py", "--mode", "history", "--history", place)
    assert found.code == 2
    assert "Traceback" not in found.stderr
    assert not (repo.path / "ran").exists()


def test_a_replay_never_destroys_its_input(repo: Repo, saved: Path) -> None:
    """Its report would go where the record lies."""
    place = repo.out / "gate.json"
    place.write_bytes(saved.read_bytes())
    assert replay(repo, place, "--overwrite").code == 2
    assert place.read_bytes() == saved.read_bytes()
