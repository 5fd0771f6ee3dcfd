"""Each attack of a hostile head or its setup fails, and works where nothing isolates it."""

import json
import os
import pwd
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hostile import MARK, SECRET, InProgram

from advisor.errors import UsageError
from advisor.gate.checkout import Checkout, head_checkout, shared_data
from advisor.gate.config import GateProgram
from advisor.gate.process import folder_of
from advisor.gate.schema import Revision
from advisor.gate.setup_step import (
    SYSTEM_HOMES,
    hidden_folders,
    secrets_of,
    set_up,
    shown_paths,
)
from advisor.sandbox.capabilities import FORCED, detect_isolation
from advisor.sandbox.path_policy import is_within
from advisor.settings import Workload
from tests.gate.repos import ROOT, STEADY, WARM_UPS, Gated, Repo

pytestmark = pytest.mark.slow

HOSTILE = (Path(__file__).parent / "hostile.py").read_text()
STEERED = ("env", "path", "state")
TOKENS = {
    "GITHUB_TOKEN": SECRET,
    "ACTIONS_RUNTIME_TOKEN": SECRET,
    "ACTIONS_ID_TOKEN_REQUEST_URL": f"https://{SECRET}",
    "MY_DEPLOY_TOKEN": SECRET,
    "DATABASE_PASSWORD": SECRET,
    "SSH_AUTH_SOCK": f"/run/{SECRET}",
    "BACKUP_URL": f"https://user:{SECRET}@example.com/",
}
KINDS = ("overlay", "landlock")
HARMS_ANY_HOST = (
    "take_the_walls_down", "nest_namespaces", "climb_out_of_the_root",
    "edit_base_through_other_processes",
)  # fmt: skip
"""Without walls these would change the machine that runs the tests."""
HELD_BY_MORE = {
    "poison_the_caches_of_base",  # they are gone at the end
    "print_workflow_commands",
    "stay_alive",
}
"""Held without isolation as well, or not seen afterwards."""


@dataclass
class Host:
    """A runner with secrets, services and files that steer a job."""

    repo: Repo
    places: dict[str, Any]

    def attacked(
        self, kind: str, *flags: str, step: str = "program", left_out: tuple[str, ...] = ()
    ) -> Gated:
        """A gate on a head that is half as fast as base, and hostile, as its setup is."""
        repo = self.repo
        checks = "import os; assert open('built').read() == os.environ['GPU_ADVISOR_ARM']\n"
        # a path in a command would be shown to it
        both = {"setup.py": HOSTILE, "built": "", ".gitignore": "linked\n.venv\n"}
        both["places.json"] = json.dumps(self.places)
        repo.commit({"bench.py": checks + STEADY.format(rate=100), **both})
        repo.commit({"bench.py": HOSTILE})
        repo.env[FORCED] = kind
        words = " ".join(left_out)
        # a process of its own, because the environment that it began with can be read
        return repo.run(repo.command(
            "--command", f"python bench.py {step} {words} .venv/bin/python",
            "--setup", f"python setup.py setup {words}", *WARM_UPS, *flags,
        ))  # fmt: skip

    def worked(self, found: Gated) -> set[str]:
        """Attacks that left a mark on the host, or saw themselves work."""
        files = (path for path in self.repo.path.parent.rglob("*") if path.is_file())
        text = "".join(path.read_text(errors="replace") for path in files)
        reached = " ".join(re.findall(r"REACHED ([\w ]+)", found.stdout))
        return {*re.findall(rf"{MARK} (\w+)", text), *reached.split()}


@contextmanager
def hosted(repo: Repo) -> Iterator[Host]:
    folder = repo.path.parent
    home, runner, tmp = folder / "home", folder / "actions-runner", folder / "tmp"
    temp, sockets, victims = runner / "_work" / "_temp", folder / "s", repo.out / "victims"
    secrets = (
        home / ".ssh/id_ed25519", home / ".cache/huggingface/token", home / ".docker/config.json",
        home / ".bashrc", runner / ".credentials", runner / "_work/other/secret",
        temp / "event.json", tmp / "gpu-advisor-another/base/bench.py",
        *(victims / name for name in STEERED),
    )  # fmt: skip
    for path in secrets:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
        path.chmod(0o600)
    for place in (sockets, folder / "site", temp / "gpu-advisor" / "app"):
        place.mkdir(parents=True)
    repo.env.clear()
    steering = {f"GITHUB_{name.upper()}": str(victims / name) for name in STEERED}
    repo.on_github({}, **steering, RUNNER_TEMP=str(temp), HOME=str(home), TMPDIR=str(tmp))
    repo.env |= TOKENS
    with ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = tcp.getsockname()[1]
        for address in (f"{sockets}/docker.sock", f"\0gate-{port}"):
            named = stack.enter_context(socket.socket(socket.AF_UNIX))
            named.bind(address)
            named.listen()
        stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)).bind(f"{sockets}/log")
        places = {
            "home": home, "runner": runner, "temp": temp, "sockets": sockets, "victims": victims,
            "site": folder / "site", "tmp": tmp, "out": repo.out, "head": repo.path,
        }  # fmt: skip
        yield Host(repo, {name: str(place) for name, place in places.items()} | {"port": port})


@pytest.fixture
def host(repo: Repo) -> Iterator[Host]:
    with hosted(repo) as found:
        yield found


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if detect_isolation(str(tmp_path)).kind == "guard":
        pytest.skip("this host offers no isolation")
    return str(request.param)


def test_no_attack_works_and_each_arm_is_measured_all_the_same(host, kind) -> None:
    """Base was not edited, its caches are its own, both builds are there, and the log obeys
    nothing."""
    found = host.attacked(kind)
    time.sleep(6)  # a daemon that lived on would write now
    assert host.worked(found) == set()
    assert (found.record.verdict, found.outputs["verdict"]) == 2 * ("inconclusive",), found.stderr
    assert found.warm_up_rates == {"base": 100, "head": 50}
    said = found.stderr + found.stdout
    commands = re.findall(r"^::([\w-]+)", said, re.MULTILINE)
    assert commands[0] == "stop-commands"
    assert commands.count("error") == 1
    assert "##[" not in said
    (note,) = (note for note in found.record.notes if note.startswith("withheld"))
    assert all(name in note for name in TOKENS)
    assert SECRET not in (found.folder / "gate.json").read_text()


def test_attacks_on_its_own_records_lose_them_alone(host, kind) -> None:
    """The gate reads and writes in a run's folder: it follows no link there."""
    found = host.attacked(kind, step="records")
    assert found.record.verdict in {"error", "inconclusive"}, found.stderr
    victims = Path(host.places["victims"])
    assert {path.name: path.read_text() for path in victims.iterdir()} == dict.fromkeys(
        STEERED, "{}"
    )


def test_each_attack_works_where_its_wall_is_gone(host) -> None:
    """So that the tests above see what they look for."""
    keep = ("--keep-env", ",".join(TOKENS))
    found = host.attacked("guard", *keep, left_out=(*HARMS_ANY_HOST, "exit"))
    assert found.warm_up_rates["base"] == 50
    # the rates told of the first, and the second is open to root alone
    held = set(InProgram.names()) - host.worked(found) - {"edit_base", "read_a_key_by_the_parent"}
    assert held == HELD_BY_MORE | {*HARMS_ANY_HOST}


def test_the_network_and_data_elsewhere_can_be_kept(host, kind) -> None:
    """Data by an absolute link."""
    repo, data = host.repo, Path(host.places["home"], "data")
    data.mkdir()
    (data / "x").write_text("7")
    repo.env[FORCED] = kind
    connects = f"import socket; socket.create_connection(('127.0.0.1', {host.places['port']}))"
    repo.commit({"bench.py": f"{connects}\nprint('throughput:', open('{data}/x').read())"})
    repo.commit({"x": "1"})
    bench = ("--command", "python bench.py", *WARM_UPS, "--keep-network")
    assert repo.gate(*bench).record.verdict == "error"
    assert repo.gate(*bench, "--link", str(data)).warm_up_rates == {"base": 7, "head": 7}


def test_a_setup_has_the_network_and_writes_its_checkout_alone(tmp_path, monkeypatch, kind) -> None:
    """Under Landlock what is there, `.venv` and `build`; never `.git`, nor beside the checkout."""
    monkeypatch.setenv(FORCED, kind)
    top = tmp_path / "top"
    for name in (".git", "src"):
        (top / name).mkdir(parents=True)
    (top / "old").touch()
    made = "touch src/new old && mkdir -p .venv build && touch .venv/x build/x\n"
    new = "touch new" if kind == "overlay" else "! touch new"
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}))"
        command = (
            f'set -e; {made}{new}; ! touch .git/x; ! touch ../x; "{sys.executable}" -c "{code}"'
        )
        checkout = Checkout(top=top, cwd=top, revision=Revision())
        cancel = threading.Event()
        problem = set_up(checkout, command, {}, scratch=tmp_path / "scratch", cancel=cancel)
    assert problem is None
    names = {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}
    assert names == {"old", "src/new", ".venv/x", "build/x"} | (
        {"new"} if kind == "overlay" else set()
    )
    assert not (tmp_path / "x").exists()


def test_on_a_hosted_runner_a_program_writes_its_checkout_but_not_git(two) -> None:
    """Under Landlock, as a machine that is thrown away has nothing to lose."""
    code = (
        "import contextlib, os, pathlib\n"
        "pathlib.Path('data/kept').write_text('new')\n"
        "for place in ('new', '.git/x', '../x', os.environ['HOME'] + '/x'):\n"
        "    with contextlib.suppress(OSError): pathlib.Path(place).write_text('x'); print(place)\n"
        "print('throughput:', 7)\n"
    )
    repo = two(code, f"{code}\n")
    repo.commit({"data/kept": "old"})
    repo.commit({"bench.py": code})
    repo.on_github({}, RUNNER_ENVIRONMENT="github-hosted", HOME=str(repo.out))
    repo.env[FORCED] = "landlock"
    found = repo.gate("--command", "python bench.py", *WARM_UPS)
    assert found.warm_up_rates == {"base": 7, "head": 7}
    assert (repo.path / "data/kept").read_text() == "new"
    assert not list(repo.path.parent.rglob("x"))
    assert not (repo.path / "new").exists()


def test_the_gate_refuses_where_only_some_walls_stand(two) -> None:
    """Nothing is run."""
    repo = two(STEADY.format(rate=100), STEADY.format(rate=99))
    repo.env.clear()
    refuse = (sys.executable, str(ROOT / "tests" / "sandbox" / "refuse.py"), "unshare,seccomp")
    found = repo.run([*refuse, *repo.command("--command", "python bench.py", *WARM_UPS)])
    assert found.code == 2, found.stderr
    assert found.record.verdict == "error"
    assert "Not all walls around base and head stand here" in found.record.reason
    assert found.record.programs == []


def test_interpreters_in_the_home_are_shown(tmp_path) -> None:
    """By an absolute path, by the home's name, and by a link in the checkout, but no other file."""
    home, top = tmp_path / "home", tmp_path / "project"
    for name in ("uv/bin/python3.11", "env/bin/python", "secret/key"):
        (home / name).parent.mkdir(parents=True)
        (home / name).touch()
    (folder := top / ".venv" / "bin").mkdir(parents=True)
    (folder / "python").symlink_to(home / "uv/bin/python3.11")
    (folder / "python3").symlink_to(home / "secret/key")
    checkout = Checkout(top=top, cwd=top, revision=Revision())
    for command, wanted in (
        (".venv/bin/python x.py", "uv/bin"), ("~/env/bin/python x.py", "env/bin"),
        (f"{home}/env/bin/python x.py", "env/bin"),
    ):  # fmt: skip
        environ = {"HOME": str(home), "PATH": "/" + "x" * 300}  # may not be read
        shown = shown_paths(checkout, command, environ=environ)
        assert str(home / wanted) in shown
        assert not any(is_within(f"{home}/secret/key", path) for path in shown)


def test_what_a_program_cannot_run_without_is_shown(tmp_path) -> None:
    """Interpreters on PATH, downloads of models but no token, and paths that the command names."""
    home, top = tmp_path / "home", tmp_path / "home" / "project"
    for name in ("env/bin/python", "hf/hub/x", "hf/token", "data/x", "more/x", "project/x"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()
    environ = {"HOME": str(home), "PATH": str(home / "env/bin"), "HF_HOME": str(home / "hf")}
    checkout = Checkout(top=top, cwd=top, revision=Revision())
    found = shown_paths(checkout, f"python x.py {home}/data", [str(home / "more")], environ)
    wanted = {"env/bin", "env/lib", "hf/hub", "data", "more", "project"}
    names = {*wanted, "hf/token", ".ssh"}
    assert wanted == {
        name for name in names if any(is_within(str(home / name), path) for path in found)
    }


def test_no_link_of_the_change_shows_what_is_hidden(tmp_path) -> None:
    """A change, or its setup, puts links where an environment, a cache or data would lie."""
    home, head, base = (tmp_path / name for name in ("home", "head", "base"))
    for folder in (home / ".ssh", home / "env/bin", head / ".venv/bin", base):
        folder.mkdir(parents=True)
    for place in (home / "env/bin", head / ".venv/bin"):
        (place / "python").symlink_to(sys.executable)
    for name in (".venv/lib", "data", "cache", "tools"):
        (head / name).symlink_to(home / ".ssh")
    (home / "path").symlink_to(head / "tools")
    environ = {
        "HOME": str(home), "PATH": f"{head}/tools:{home}/path:{head}/.venv/bin",
        "TRITON_HOME": f"{head}/cache",
    }  # fmt: skip
    command = f".venv/bin/python x.py {head}/data {head}/data/mine.txt ../home/env/bin/python"
    for top in (head, base):
        checkout = Checkout(top=top, cwd=top, revision=Revision())
        shown = shown_paths(checkout, command, environ=environ, tops=(head, base))
        assert not [path for path in shown if is_within(path, str(home / ".ssh"))]
        assert str(home / "env/lib") in shown
        assert str(head) in shown


@pytest.mark.parametrize("name", ["gpu-advisor.toml", "pyproject.toml"])
def test_settings_behind_a_link_that_leads_out_are_not_read(repo, name) -> None:
    """The gate would read a secret for the change, and tell of it."""
    (repo.out / "secret.toml").write_text('[tool.gpu-advisor]\ntoken = "precious"\n')
    repo.commit({"bench.py": ""})
    (repo.path / name).symlink_to(repo.out / "secret.toml")
    repo.commit({})
    found = repo.gate(*WARM_UPS)
    assert found.code == 2
    assert "leads out of its checkout" in found.stderr
    assert "token" not in found.stdout + found.stderr + found.record.model_dump_json()


def test_data_that_a_link_of_the_change_leads_to_is_not_shared(repo) -> None:
    """The workflow names `data/x`, and the change lets `data` lead to the keys."""
    keys = repo.out / "keys"
    keys.mkdir()
    (keys / "x").write_text("precious")
    repo.commit({"bench.py": ""})
    (repo.path / "data").symlink_to(keys)
    head = head_checkout(repo.path)
    assert shared_data(head, ["data/x"]) == (keys / "x",)  # one that git ignores is the user's
    repo.commit({"bench.py": "1"})
    with pytest.raises(UsageError, match="through a link that git tracks"):
        shared_data(head, ["data/x"])


def test_a_folder_that_leads_out_of_its_checkout_runs_nothing(tmp_path) -> None:
    """A setup may leave a link there, and where writes are allowed they would be real."""
    top = tmp_path / "checkout"
    (top / "inside").mkdir(parents=True)
    (top / "sub").symlink_to(tmp_path)
    (top / "link").symlink_to("inside")
    checkout = Checkout(top=top, cwd=top, revision=Revision())
    entry = Workload(command="python bench.py", unit="unit")
    for folder in (".", "inside", "link"):
        program = GateProgram(name="bench", workload=entry, folder=folder)
        assert folder_of(program, checkout) == top / folder
    with pytest.raises(UsageError, match="leads out of its checkout"):
        folder_of(GateProgram(name="bench", workload=entry, folder="sub"), checkout)


def test_the_folder_of_the_runner_is_hidden_by_its_marks(tmp_path) -> None:
    temp = tmp_path / "runner" / "_work" / "_temp"
    temp.mkdir(parents=True)
    environ = {"HOME": "/", "RUNNER_TEMP": str(temp)}
    assert str(temp) in hidden_folders(environ)
    (tmp_path / "runner" / ".runner").touch()
    assert str(tmp_path / "runner") in hidden_folders(environ)
    assert "/" not in hidden_folders(environ)


def test_a_home_that_holds_the_system_is_hidden_by_its_dotted_entries(tmp_path) -> None:
    """Containers give users without an account the root for a home; all else must be seen there."""
    for name in (".ssh", ".netrc", "usr"):
        (tmp_path / name).mkdir()
    root = str(tmp_path)
    dotted = {f"{root}/.ssh", f"{root}/.netrc"}
    assert secrets_of(root, system=(root,)) == dotted
    assert secrets_of(f"{root}/usr", system=("/", root)) == set()
    assert secrets_of(root) == {root}
    assert not any(path in hidden_folders({"HOME": "/usr"}) for path in ("/", "/usr"))


def test_the_home_of_the_account_is_hidden_where_a_container_sets_another(tmp_path) -> None:
    """GitHub sets HOME to `/github/home`; keys of the image's user lie where they lay."""
    hidden = hidden_folders({"HOME": str(tmp_path)})
    assert str(tmp_path) in hidden
    assert not Path("/run").exists() or os.path.realpath("/run") in hidden
    try:
        account = os.path.realpath(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        pytest.skip("a number without an account")
    assert any(is_within(account, each) for each in hidden) or account in SYSTEM_HOMES


PINS_THE_GATE = """
import os
pid = os.getpid()
while pid > 1:
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
    words = open(f"/proc/{pid}/cmdline").read() if pid > 1 else ""
    if os.environ["GPU_ADVISOR_ARM"] == "head" and "advisor\\0gate" in words:
        os.sched_setaffinity(pid, {min(os.sched_getaffinity(pid))})
print("throughput:", len(os.sched_getaffinity(0)))
"""


def test_a_pair_during_which_the_gate_was_slowed_is_discarded(two) -> None:
    """Where nothing isolates: each run still begins with all CPUs, and the reason is told."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")
    repo = two(PINS_THE_GATE, f"{PINS_THE_GATE} ")
    repo.env[FORCED] = "guard"
    # it ends once too many pairs were discarded, however slow the host is
    found = repo.run(repo.command("--command", "python bench.py", "--max-minutes", "5"))
    assert found.record.verdict not in {"pass", "regression"}
    pairs = found.record.programs[0].pairs
    assert pairs, found.stderr
    assert {pair.discarded for pair in pairs} == {"something changed its CPUs of gpu-advisor"}
    cpus = len(os.sched_getaffinity(0))
    assert {rate.mean for run in pairs[-1].runs for rate in run.rates.values()} == {cpus}


def test_without_isolation_the_report_says_so_and_a_variable_can_be_handed_over(two) -> None:
    """By name alone; what steers the job cannot. The program gives no rate without it."""
    handed = (
        "import os; seen = 'HF_TOKEN' in os.environ and 'GITHUB_ENV' not in os.environ\n"
        "print('throughput:', int(seen))"
    )
    repo = two(handed, f"{handed} ")
    repo.git("config", "http.https://github.com/.extraheader", "AUTHORIZATION: basic eA==")
    repo.on_github({}, HF_TOKEN=SECRET, GITHUB_ENV=str(repo.out / "env"))
    keep = ("--keep-env", "HF_TOKEN,GITHUB_ENV")
    record = repo.gate("--command", "python bench.py", *WARM_UPS, *keep).record
    assert record.verdict == "inconclusive", record.reason
    assert SECRET not in record.model_dump_json()
    for words in ("not isolated", "persist-credentials: false"):
        assert any(words in note for note in record.notes)
        assert words in (repo.out / "gate.md").read_text()
