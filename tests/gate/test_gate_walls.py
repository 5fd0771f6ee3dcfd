"""Code of a change reaches no secret, socket, network or file of the runner, nor does its setup."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from advisor.gate.checkout import Checkout
from advisor.gate.schema import Revision
from advisor.gate.setup_step import hidden_folders, shown_paths
from advisor.sandbox.capabilities import FORCED, detect_isolation
from advisor.sandbox.path_policy import is_within
from tests.gate.repos import WARM_UPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.gate.repos import Repo

KINDS = ("overlay", "landlock")

REACHES = """
import os, pathlib, socket, sys
home, runner, sockets, port = sys.argv[1:]
reached = []

def attack(function):
    try:
        function()
        reached.append(function.__name__)
    except (OSError, EOFError):
        pass

def connect(family, address):
    with socket.socket(family) as other:
        other.settimeout(3)
        other.connect(address)

@attack
def key_of_the_user(): pathlib.Path(home, ".ssh", "id_ed25519").read_text()
@attack
def key_through_proc(): pathlib.Path(f"/proc/self/root{home}/.ssh/id_ed25519").read_text()
@attack
def key_by_the_parent():
    pathlib.Path(f"/proc/{os.getppid()}/root{home}/.ssh/id_ed25519").read_text()
@attack
def token_of_the_hub(): pathlib.Path(home, ".cache", "huggingface", "token").read_text()
@attack
def login_of_docker(): pathlib.Path(home, ".docker", "config.json").read_text()
@attack
def credentials_of_the_runner(): pathlib.Path(runner, ".credentials").read_text()
@attack
def files_of_another_job(): pathlib.Path(runner, "_work", "other", "secret").read_text()
@attack
def files_of_the_job(): pathlib.Path(runner, "_work", "_temp", "event.json").read_text()
@attack
def socket_of_a_daemon(): connect(socket.AF_UNIX, f"{sockets}/docker.sock")
@attack
def socket_by_a_relative_path():
    os.chdir(sockets)
    connect(socket.AF_UNIX, "docker.sock")
@attack
def socket_by_a_link():
    os.symlink(sockets, os.environ["TMPDIR"] + "/s")
    connect(socket.AF_UNIX, os.environ["TMPDIR"] + "/s/docker.sock")
if os.environ["GPU_ADVISOR_ISOLATION"] == "overlay":
    @attack
    def service_of_the_host(): connect(socket.AF_INET, ("127.0.0.1", int(port)))
    @attack
    def the_network(): connect(socket.AF_INET, ("1.1.1.1", 53))
@attack
def abstract_socket(): connect(socket.AF_UNIX, chr(0) + f"gate-{port}")

# What programs do by themselves goes on.
import multiprocessing.connection as connection, threading
listener = connection.Listener(family="AF_UNIX")
thread = threading.Thread(target=lambda: listener.accept().send("hello"))
thread.start()
assert connection.Client(listener.address).recv() == "hello"
thread.join()
with socket.create_server(("127.0.0.1", 0)) as server:
    connect(socket.AF_INET, server.getsockname())
sys.exit(f"REACHED {reached}") if reached else print("throughput: 1")
"""
HARMS = """
import os, pathlib, subprocess, sys
home, runner, project = sys.argv[1:]
if os.environ["GPU_ADVISOR_ARM"] == "head":
    for place in (home + "/.bashrc", home + "/.gitconfig", project + "/.git/hooks/post-checkout",
                  project + "/.git/config", project + "/.git/info/attributes", runner + "/x",
                  project + "/../beside", "/usr/local/bin/gate-attack"):
        try: pathlib.Path(place).write_text("ATTACK")
        except OSError: pass
    for words in (("core.fsmonitor", "/bin/false"), ("filter.x.smudge", "false")):
        subprocess.run(["git", "-C", project, "config", *words], capture_output=True)
        subprocess.run(["git", "config", "--global", *words], capture_output=True)
    try:
        print(pathlib.Path(home, ".ssh", "id_ed25519").read_text())
        sys.exit("REACHED a key")
    except OSError: pass
pathlib.Path("build").mkdir(exist_ok=True)
pathlib.Path("build", "made").write_text(os.environ["GPU_ADVISOR_ARM"])
"""


@pytest.fixture
def host(repo: Repo, tmp_path: Path) -> Iterator[tuple[str, str, str, str]]:
    """A home and a runner with secrets, and services of the host: their places."""
    home, runner = tmp_path / "home", tmp_path / "actions-runner"
    temp, sockets = runner / "_work" / "_temp", tmp_path / "s"
    secrets = (
        home / ".ssh" / "id_ed25519", home / ".cache" / "huggingface" / "token",
        home / ".docker" / "config.json", home / ".bashrc", runner / ".credentials",
        runner / "_work" / "other" / "secret", temp / "event.json",
    )  # fmt: skip
    for path in secrets:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    sockets.mkdir()
    repo.env.clear()
    repo.on_github({}, RUNNER_TEMP=str(temp), HOME=str(home))
    with socket.socket(socket.AF_UNIX) as named, socket.create_server(("127.0.0.1", 0)) as tcp:
        named.bind(f"{sockets}/docker.sock")
        named.listen()
        port = tcp.getsockname()[1]
        with socket.socket(socket.AF_UNIX) as abstract:
            abstract.bind(f"\0gate-{port}")
            abstract.listen()
            yield str(home), str(runner), str(sockets), str(port)


def isolated(repo: Repo, kind: str) -> None:
    if detect_isolation(str(repo.path)).kind == "guard":
        pytest.skip("this host offers no isolation")
    repo.env[FORCED] = kind


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_reaches_nothing_of_the_host(repo: Repo, host, kind: str) -> None:
    isolated(repo, kind)
    repo.commit({"bench.py": REACHES})
    repo.commit({"x": "1"})
    found = repo.gate("--command", f"python bench.py {' '.join(host)}", *WARM_UPS)
    head = found.record.programs[0].warm_ups[0]
    assert head.problem is None, head.problem.evidence
    assert head.rates["command"].mean == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_setup_writes_its_checkout_alone(repo: Repo, host, kind: str) -> None:
    """Not even the `.git` of it, nor the settings that the next git command would obey."""
    isolated(repo, kind)
    home, runner = host[:2]
    reads = "print('throughput:', {'base': 100, 'head': 50}[open('build/made').read()])"
    repo.commit({"bench.py": reads, "setup.py": HARMS, ".gitignore": "build\n"})
    repo.commit({"x": "1"})
    config = (repo.path / ".git" / "config").read_text()
    flags = ("--setup", f"python setup.py {home} {runner} {repo.path}", *WARM_UPS)
    found = repo.gate("--command", "python bench.py", *flags)
    assert (repo.path / ".git" / "config").read_text() == config
    assert not (repo.path / ".git" / "hooks" / "post-checkout").exists()
    assert not (repo.path / ".git" / "info" / "attributes").exists()
    assert (repo.path.parent / "home" / ".bashrc").read_text() == "{}"
    for path in (f"{home}/.gitconfig", f"{runner}/x", f"{repo.path}/../beside",
                 "/usr/local/bin/gate-attack"):  # fmt: skip
        assert not Path(path).exists(), path
    rates = {run.arm: run.rates["command"].mean for run in found.record.programs[0].warm_ups}
    assert rates == {"base": 100, "head": 50}, found.record.workloads
    assert (repo.path / "build" / "made").read_text() == "head"


def test_the_network_can_be_kept(repo: Repo) -> None:
    isolated(repo, "overlay")
    with socket.create_server(("127.0.0.1", 0)) as server:
        connects = f"import socket; socket.create_connection({server.getsockname()})"
        repo.commit({"bench.py": f"{connects}\nprint('throughput: 1')"})
        repo.commit({"x": "1"})
        found = repo.gate("--command", "python bench.py", "--keep-network", *WARM_UPS)
    assert found.record.programs[0].warm_ups[0].problem is None, found.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_data_elsewhere_is_shown_by_an_absolute_link(repo: Repo, host, kind: str) -> None:
    isolated(repo, kind)
    data = Path(host[0], "data")
    data.mkdir()
    (data / "x").write_text("7")
    repo.commit({"bench.py": f"print('throughput:', open('{data}/x').read())"})
    repo.commit({"x": "1"})
    hidden = repo.gate("--command", "python bench.py", *WARM_UPS)
    assert hidden.record.verdict == "error"
    found = repo.gate("--command", "python bench.py", "--link", str(data), *WARM_UPS)
    assert {run.rates["command"].mean for run in found.record.programs[0].warm_ups} == {7}


def test_interpreters_in_the_home_are_shown(tmp_path: Path) -> None:
    """By an absolute path, by the home's name, and by a link in the checkout, but no other file."""
    home, top = tmp_path / "home", tmp_path / "project"
    for name in ("uv/bin/python3.11", "env/bin/python", "secret/key"):
        (home / name).parent.mkdir(parents=True)
        (home / name).touch()
    (top / ".venv" / "bin").mkdir(parents=True)
    (top / ".venv" / "bin" / "python").symlink_to(home / "uv/bin/python3.11")
    (top / ".venv" / "bin" / "python3").symlink_to(home / "secret/key")
    checkout = Checkout(top=top, cwd=top, revision=Revision())
    environ = {"HOME": str(home)}
    for command, wanted in (
        (".venv/bin/python x.py", "uv/bin"), ("~/env/bin/python x.py", "env/bin"),
        (f"{home}/env/bin/python x.py", "env/bin"),
    ):  # fmt: skip
        shown = shown_paths(checkout, command, environ=environ)
        assert str(home / wanted) in shown
        assert not any(is_within(f"{home}/secret/key", path) for path in shown)
        assert str(home) not in shown


def test_the_folder_of_the_runner_is_hidden_by_its_marks(tmp_path: Path) -> None:
    temp = tmp_path / "runner" / "_work" / "_temp"
    temp.mkdir(parents=True)
    environ = {"HOME": "/", "RUNNER_TEMP": str(temp)}
    assert str(temp) in hidden_folders(environ)
    (tmp_path / "runner" / ".runner").touch()
    assert str(tmp_path / "runner") in hidden_folders(environ)
    assert "/" not in hidden_folders(environ)
