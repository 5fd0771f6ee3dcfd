"""Nothing of what a hostile head tries works; without isolation no fork runs."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest
from hostile import MARK, SECRET

from advisor.errors import GATE_EXIT_CODES
from advisor.sandbox.capabilities import FORCED, detect_isolation
from tests.gate.repos import ROOT, STEADY, WARM_UPS, Gated, Repo, fork_event

HOSTILE = (Path(__file__).parent / "hostile.py").read_text()
FILES = ("env", "path", "output", "state", "summary")
TOKENS = {
    "GITHUB_TOKEN": SECRET,
    "ACTIONS_RUNTIME_TOKEN": SECRET,
    "ACTIONS_ID_TOKEN_REQUEST_URL": f"https://{SECRET}",
    "MY_DEPLOY_TOKEN": SECRET,
    "DATABASE_PASSWORD": SECRET,
    "SSH_AUTH_SOCK": f"/run/{SECRET}",
    "BACKUP_URL": f"https://user:{SECRET}@example.com/",
}


@pytest.fixture
def repo(repo: Repo) -> Repo:
    """Isolated by the best kind that holds here."""
    repo.env.clear()
    return repo


def attacked(repo: Repo, *flags: str, what: str = "all", kind: str) -> tuple[Repo, Gated]:
    """A gate on a head that is half as fast as base, and hostile."""
    victims = repo.out / "victims"
    victims.mkdir()
    for name in FILES:
        (victims / name).write_text("")
    repo.commit({"bench.py": STEADY.format(rate=100)}, "base")
    repo.commit({"bench.py": HOSTILE}, "head")
    repo.on_github(
        {}, **{f"GITHUB_{n.upper()}": str(victims / n) for n in ("env", "path", "state")}
    )
    repo.env |= {**TOKENS, FORCED: kind}
    words = [what, os.environ.get("TMPDIR", "/tmp"), str(repo.out), str(victims), str(repo.path)]
    return repo, repo.gate("--command", f"python bench.py {' '.join(words)}", *flags)


EARLY = ("--threshold", "60%")
"""Half of the rate is allowed: that is proven by five pairs, where a regression takes nine."""
KINDS = {"overlay": (EARLY, "pass"), "landlock": (WARM_UPS, "inconclusive")}
"""Flags of the gate under each kind of isolation, and what it then comes to. Head runs before base
from the first process on."""


@pytest.fixture(scope="module", params=KINDS)
def attempt(request, tmp_path_factory, new_repo) -> tuple[Repo, Gated]:
    """The hostile head under each kind of isolation that this host offers."""
    folder = tmp_path_factory.mktemp(request.param)
    if detect_isolation(str(folder)).kind == "guard":
        pytest.skip("this host offers no isolation")
    return attacked(new_repo(folder), *KINDS[request.param][0], kind=request.param)


def test_the_slowdown_is_told_all_the_same(attempt: tuple[Repo, Gated]) -> None:
    """Base was not edited, its caches were not poisoned, and no secret was found."""
    repo, found = attempt
    _, verdict = KINDS[repo.env[FORCED]]
    assert (found.record.verdict, found.outputs["verdict"]) == (verdict, verdict), found.stderr
    assert found.code == GATE_EXIT_CODES[verdict]
    (program,) = found.record.programs
    paired = [run for pair in program.pairs for run in (pair.base, pair.head)]
    for run in (*program.warm_ups, *paired):
        true = {"base": 100, "head": 50}[run.arm]
        assert run.rates["command"].mean == pytest.approx(true, rel=0.01)


def test_no_file_of_the_host_was_touched(attempt: tuple[Repo, Gated]) -> None:
    """Not the files that steer the job, not git's, not Python's, not the report's."""
    repo, found = attempt
    time.sleep(3)  # a daemon that lived on would write now
    for name in FILES:
        assert (repo.out / "victims" / name).read_text() == "", name
    assert sorted(path.name for path in (repo.out / "victims").iterdir()) == sorted(FILES)
    assert not (repo.out / "gate.md").is_symlink()
    assert not (Path.home() / ".attacked").exists()
    assert not list(ROOT.rglob("attacked*"))
    assert not (repo.path / ".git" / "hooks" / "post-checkout").exists()
    assert "fsmonitor" not in (repo.path / ".git" / "config").read_text()
    assert len(repo.git("worktree", "list").splitlines()) == 1
    assert repo.git("status", "--porcelain") == ""
    assert MARK not in found.summary


def test_the_log_obeys_nothing(attempt: tuple[Repo, Gated]) -> None:
    repo, found = attempt
    _, verdict = KINDS[repo.env[FORCED]]
    commands = re.findall(r"^::([\w-]+)", found.stderr + found.stdout, re.MULTILINE)
    assert commands[0] == "stop-commands"
    assert commands.count("notice" if verdict == "pass" else "error") == 1
    assert "##[" not in found.stderr + found.stdout


def test_what_is_withheld_is_named(attempt: tuple[Repo, Gated]) -> None:
    """So that who needs a variable knows how to hand it over."""
    _, found = attempt
    (note,) = (note for note in found.record.notes if note.startswith("withheld"))
    assert all(name in note for name in TOKENS)
    assert SECRET not in (found.folder / "gate.json").read_text()


@pytest.mark.parametrize("kind", ["overlay", "landlock"])
def test_a_head_that_attacks_its_own_records_only_loses_them(repo: Repo, kind: str) -> None:
    """What lies in a run's folder is read and written by the gate: no link is followed there."""
    repo, found = attacked(repo, *WARM_UPS, what="records", kind=kind)
    assert found.record.verdict in {"error", "inconclusive"}, found.stderr
    for name in FILES:
        assert (repo.out / "victims" / name).read_text() == "", name
    assert sorted(path.name for path in (repo.out / "victims").iterdir()) == sorted(FILES)


SETUP = """
import glob, os, pathlib, sys
tmp, victims, temp = sys.argv[1:]
def write(path, text):
    try: pathlib.Path(path).write_text(text)
    except OSError: pass
for path in glob.glob(os.path.join(tmp, "gpu-advisor-*", "*", "bench.py")):
    if os.environ["GPU_ADVISOR_ARM"] == "head":
        write(path, "print('throughput:', 50)")
for path in (*glob.glob(victims + "/*"), temp + "/gpu-advisor/app/advisor.py", temp + "/others/x"):
    write(path, "ATTACK WORKED")
pathlib.Path("built").write_text(os.environ["GPU_ADVISOR_ARM"])
for path in glob.glob("/proc/[0-9]*/environ"):
    try: assert b"sw0rdf1sh" not in pathlib.Path(path).read_bytes(), path
    except OSError: pass
"""
BUILT = "import os; assert open('built').read() == os.environ['GPU_ADVISOR_ARM']\n"


@pytest.mark.parametrize("kind", ["overlay", "landlock"])
def test_the_setup_of_head_reaches_neither_base_nor_the_job_nor_us(repo: Repo, kind: str) -> None:
    """It may build in its own checkout, and its build is there when head runs. Nothing else is
    written: not what another gate measures on this host, and not RUNNER_TEMP."""
    victims, temp = repo.out / "victims", repo.path.parent / "temp"
    tmp = repo.path.parent / "tmp"
    another = tmp / "gpu-advisor-call-of-another" / "base" / "bench.py"
    for folder in (victims, temp / "gpu-advisor" / "app", temp / "others", another.parent):
        folder.mkdir(parents=True)
    another.write_text("its own")
    (victims / "env").write_text("")
    repo.commit(
        {"bench.py": BUILT + STEADY.format(rate=100), "setup.txt": SETUP, "built": ""}, "base"
    )
    repo.commit({"bench.py": BUILT + STEADY.format(rate=50)}, "head")
    repo.on_github({}, GITHUB_ENV=str(victims / "env"), RUNNER_TEMP=str(temp))
    repo.env |= {**TOKENS, FORCED: kind, "TMPDIR": str(tmp)}
    setup = f"python setup.txt {tmp} {victims} {temp}"
    found = repo.gate("--command", "python bench.py", "--setup", setup, *WARM_UPS)
    rates = {run.arm: run.rates["command"].mean for run in found.record.programs[0].warm_ups}
    assert rates == {"base": pytest.approx(100, rel=0.01), "head": pytest.approx(50, rel=0.01)}
    assert (victims / "env").read_text() == ""
    assert another.read_text() == "its own"
    assert (repo.path / "built").read_text() == "head"
    assert not (temp / "gpu-advisor" / "app" / "advisor.py").exists()
    assert not (temp / "others" / "x").exists()


def test_a_report_that_setup_replaced_by_a_link_is_not_written_through(repo: Repo) -> None:
    """The job fails, and says so; what the link leads to stays."""
    victim = repo.path.parent / "victim"
    victim.write_text("mine")
    repo.env[FORCED] = "guard"  # which would let a setup write there in any case
    repo.commit({"bench.py": STEADY.format(rate=100)})
    repo.commit({"x": "1"})
    link = f"ln -sf {victim} {repo.out}/gate.md"
    found = repo.gate("--command", "python bench.py", "--setup", link, *WARM_UPS)
    assert found.code != 0
    assert "leads to" in found.stderr
    assert victim.read_text() == "mine"


def test_without_isolation_a_fork_is_refused_wherever_it_runs(repo: Repo) -> None:
    """Although forks are allowed, and the runner is thrown away: nothing would hold its code."""
    repo.commit({"bench.py": "open('ran', 'w')"})
    repo.commit({"x": "1"})
    repo.on_github(fork_event(), RUNNER_ENVIRONMENT="github-hosted")
    found = repo.gate("--command", "python bench.py", "--allow-forks", env={FORCED: "guard"})
    assert (found.code, found.outputs["verdict"]) == (2, "error")
    assert "nothing isolates" in found.summary
    assert not (repo.path / "ran").exists()


HANDED = """
import os
seen = "HF_TOKEN" in os.environ and "GITHUB_ENV" not in os.environ
print("throughput:", int(seen))
"""


@pytest.fixture(scope="module")
def unprotected(tmp_path_factory: pytest.TempPathFactory, new_repo) -> Gated:
    """A gate without isolation, in a checkout that keeps a token, which hands a variable over."""
    repo = new_repo(tmp_path_factory.mktemp("unprotected"))
    repo.commit({"bench.py": HANDED})
    repo.commit({"x": "1"})
    repo.git("config", "http.https://github.com/.extraheader", "AUTHORIZATION: basic eA==")
    repo.on_github({}, HF_TOKEN=SECRET, GITHUB_ENV=str(repo.out / "env"))
    keep = ("--keep-env", "HF_TOKEN,GITHUB_ENV")
    return repo.gate("--command", "python bench.py", *WARM_UPS, *keep)


def test_without_isolation_the_report_says_what_is_not_protected(unprotected: Gated) -> None:
    (note,) = (note for note in unprotected.record.notes if note.startswith("not isolated"))
    assert "files" in note
    assert "environment" in note
    assert "not isolated" in (unprotected.folder / "gate.md").read_text()
    assert any("persist-credentials: false" in note for note in unprotected.record.notes)


def test_a_variable_can_be_handed_over(unprotected: Gated) -> None:
    """By name alone; what steers the job cannot. The program says no rate without it."""
    record = unprotected.record
    assert record.verdict == "inconclusive", record.reason
    assert json.dumps(record.model_dump()).count(SECRET) == 0
