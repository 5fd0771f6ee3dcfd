"""A head that means harm: each attack by its name, in every run or in its setup.

An attack that is seen from inside returns true. All others leave a mark with their name on the
host. The program goes on whatever fails, and at its end names the attacks that it saw work.
"""

from __future__ import annotations

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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Attack = Callable[[SimpleNamespace], object]

MARK = "ATTACK WORKED:"
SECRET = "sw0rdf1sh-of-the-job"
ATTACKS: dict[str, dict[str, Attack]] = {"program": {}, "setup": {}, "records": {}}
"""By the step that tries them; those on its own records cost a run its rate."""


def of(*steps: str) -> Callable[[Attack], Attack]:
    def noted(attack: Attack) -> Attack:
        for step in steps:
            ATTACKS[step][attack.__name__] = attack
        return attack

    return noted


def harm(path: str | Path, name: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"# {MARK} {name}\n")


def each(pattern: str) -> list[str]:
    return glob.glob(pattern)  # noqa: PTH207  an absolute pattern


def others(what: str) -> list[str]:
    return [p for p in each(f"/proc/[0-9]*/{what}") if p.split("/")[2] != str(os.getpid())]


def connects(family: int, address: object) -> bool:
    with socket.socket(family) as other:
        other.settimeout(3)
        other.connect(address)
    return True


# --- files of the host ------------------------------------------------------------------------


def _writes(name: str, place: str) -> None:
    def attack(host: SimpleNamespace) -> None:
        harm(place.format(**vars(host)), name)

    attack.__name__ = name
    of("setup", "program")(attack)


for _name, _place in {
    "write_the_shells_start": "{home}/.bashrc",
    "install_a_git_hook": "{head}/.git/hooks/post-checkout",
    "write_beside_the_checkout": "{head}/../beside",
    "append_to_steering_files": "{victims}/env",
    "replace_gpu_advisor": "{temp}/gpu-advisor/app/advisor.py",
    "stay_in_python": "{site}/attacked.pth",
    "edit_the_code_of_another_gate": "{tmp}/gpu-advisor-another/base/bench.py",
}.items():
    _writes(_name, _place)


@of("setup", "program")
def set_gits_monitor(host: SimpleNamespace) -> None:
    words = ("config", "core.fsmonitor", f"{MARK} set_gits_monitor")
    subprocess.run(["git", "-C", host.head, *words], check=False, capture_output=True)


@of("setup", "program")
def set_a_git_filter(host: SimpleNamespace) -> None:
    words = ("filter.x.smudge", f"{MARK} set_a_git_filter")
    subprocess.run(["git", "-C", host.head, "config", *words], check=False, capture_output=True)
    subprocess.run(["git", "config", "--global", *words], check=False, capture_output=True)
    harm(f"{host.head}/.git/info/attributes", "set_a_git_filter")


@of("program")
def replace_steering_files(host: SimpleNamespace) -> None:
    path = Path(host.victims, "state")
    harm(f"{path}.draft", "replace_steering_files")
    Path(f"{path}.draft").replace(path)


@of("program")
def link_steering_files(host: SimpleNamespace) -> None:
    os.link(f"{host.victims}/path", "linked")
    harm("linked", "link_steering_files")


@of("program")
def replace_the_report(host: SimpleNamespace) -> None:
    path = Path(host.out, "gate-benchmarks.json")
    path.unlink(missing_ok=True)
    path.symlink_to(f"{host.victims}/report")
    harm(path, "replace_the_report")


@of("program")
def stay_alive(host: SimpleNamespace) -> None:
    """A daemon that writes once the gate is over.

    Popen returns once the shell runs; a mere fork could still be a Python that another attack sees.
    """
    command = f"sleep 3; echo '{MARK} stay_alive' >> {host.victims}/env"
    subprocess.Popen(["sh", "-c", command], start_new_session=True)


# --- the other arm ----------------------------------------------------------------------------


@of("setup", "program")
def edit_base(host: SimpleNamespace) -> None:
    """By where worktrees lie, and by git's own books."""
    found = each(f"{host.tmp}/gpu-advisor-*/*/bench.py")
    for book in each(f"{host.head}/.git/worktrees/*/gitdir"):
        found.append(str(Path(Path(book).read_text().strip()).parent / "bench.py"))
    for path in found:
        if "gpu-advisor-another" not in path:
            with contextlib.suppress(OSError):
                Path(path).write_text("print('throughput:', 50)\n")


@of("program")
def edit_base_through_other_processes(host: SimpleNamespace) -> None:
    """Only files of the test: without a wall the way leads to every process of the machine."""
    for folder in others("cwd") + others("root") + others("fd/*"):
        for name in (f"{folder}/bench.py", folder + host.victims + "/env"):
            if os.path.realpath(name).startswith((host.tmp, host.victims)):
                with contextlib.suppress(OSError):
                    harm(name, "edit_base_through_other_processes")


@of("program")
def poison_the_caches_of_base(host: SimpleNamespace) -> None:
    for folder in each(f"{host.tmp}/gpu-advisor-*/caches/base"):
        Path(folder, "poison.py").write_text("")


# --- secrets ----------------------------------------------------------------------------------


def _reads(name: str, place: str) -> None:
    def attack(host: SimpleNamespace) -> bool:
        return bool(Path(place.format(ppid=os.getppid(), **vars(host))).read_text())

    attack.__name__ = name
    of("setup", "program")(attack)


for _name, _place in {
    "read_a_key": "{home}/.ssh/id_ed25519",
    "read_a_key_through_proc": "/proc/self/root{home}/.ssh/id_ed25519",
    "read_a_key_by_the_parent": "/proc/{ppid}/root{home}/.ssh/id_ed25519",
    "read_the_token_of_the_hub": "{home}/.cache/huggingface/token",
    "read_the_login_of_docker": "{home}/.docker/config.json",
    "read_the_credentials_of_the_runner": "{runner}/.credentials",
    "read_files_of_another_job": "{runner}/_work/other/secret",
    "read_files_of_this_job": "{temp}/event.json",
}.items():
    _reads(_name, _place)


@of("setup", "program")
def read_the_environment(_: SimpleNamespace) -> bool:
    return any(SECRET in value for value in os.environ.values())


@of("setup", "program")
def read_the_environment_of_others(_: SimpleNamespace) -> bool:
    for path in others("environ"):
        with contextlib.suppress(OSError):
            if SECRET.encode() in Path(path).read_bytes():
                return True
    return False


@of("program")
def read_the_memory_of_others(_: SimpleNamespace) -> bool:
    for path in others("maps"):
        with contextlib.suppress(OSError):
            if "python" in Path(path).read_text():
                Path(path.replace("maps", "mem")).open("rb").close()
                return True
    return False


# --- sockets and the network ------------------------------------------------------------------


@of("setup", "program")
def call_a_daemon(host: SimpleNamespace) -> bool:
    return connects(socket.AF_UNIX, f"{host.sockets}/docker.sock")


@of("setup", "program")
def call_a_daemon_by_a_link(host: SimpleNamespace) -> bool:
    with contextlib.chdir(os.environ["TMPDIR"]):
        Path("link").symlink_to(host.sockets)
        return connects(socket.AF_UNIX, "link/docker.sock")


@of("setup", "program")
def call_a_daemon_by_a_relative_path(host: SimpleNamespace) -> bool:
    with contextlib.chdir(host.sockets):
        return connects(socket.AF_UNIX, "docker.sock")


@of("setup", "program")
def call_an_abstract_socket(host: SimpleNamespace) -> bool:
    return connects(socket.AF_UNIX, f"\0gate-{host.port}")


@of("setup", "program")
def send_a_datagram_to_a_daemon(host: SimpleNamespace) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
        return bool(own.sendto(b"x", f"{host.sockets}/log"))


@of("program")
def call_a_service_of_the_host(host: SimpleNamespace) -> bool:
    return connects(socket.AF_INET, ("127.0.0.1", host.port))


# --- the walls themselves ---------------------------------------------------------------------


def _mounts(host: SimpleNamespace, name: str) -> None:
    libc = ctypes.CDLL(None)
    for path in (b"/", host.victims.encode(), b"/tmp"):
        libc.umount2(path, 2)
        libc.mount(b"none", path, None, 1 << 14 | 1 << 5 | 4096, None)
    harm(f"{host.victims}/env", name)


@of("program")
def take_the_walls_down(host: SimpleNamespace) -> None:
    _mounts(host, "take_the_walls_down")


def _in_a_child(attack: Callable[[], object]) -> None:
    if os.fork() == 0:
        try:
            attack()
        finally:
            os._exit(0)
    os.wait()


@of("program")
def nest_namespaces(host: SimpleNamespace) -> None:
    def attack() -> None:
        ctypes.CDLL(None).unshare(0x1000_0000 | 0x2_0000)
        _mounts(host, "nest_namespaces")

    _in_a_child(attack)


@of("program")
def climb_out_of_the_root(host: SimpleNamespace) -> None:
    def attack() -> None:
        Path("below").mkdir(exist_ok=True)
        os.chroot("below")
        for _ in range(64):
            os.chdir("..")
        os.chroot(".")
        harm(f"{host.victims}/env", "climb_out_of_the_root")

    _in_a_child(attack)


@of("program")
def print_workflow_commands(_: SimpleNamespace) -> None:
    print(f"::error::{MARK}\n##[error]{MARK}\n::set-env name=X::{MARK}\n::stop-commands::x\n::x::")


# --- what the gate reads of a run -------------------------------------------------------------


def scratch() -> Path:
    """Folder of this run, whose TMPDIR may lie elsewhere."""
    return Path(os.environ["GPU_ADVISOR_SPEC"]).parent


@of("records")
def replace_the_logs(host: SimpleNamespace) -> None:
    for name in ("stdout.log", "stderr.log"):
        (scratch() / "logs" / name).unlink(missing_ok=True)
        (scratch() / "logs" / name).symlink_to(f"{host.victims}/env")
    print(MARK, "replace_the_logs", flush=True)


@of("records")
def replace_the_folder_of_logs(host: SimpleNamespace) -> None:
    (scratch() / "logs").rename(scratch() / "away")
    (scratch() / "logs").symlink_to(host.victims)


@of("records")
def link_what_the_gate_writes(host: SimpleNamespace) -> None:
    names = ("room", *(f"room-{pid}" for pid in range(1, 400)), "probe/loaded.jsonl",
             "probe/disturbed.json", "probe/disturbed.tmp", "probe/999.json")  # fmt: skip
    for name in names:
        with contextlib.suppress(OSError):
            (scratch() / name).symlink_to(f"{host.victims}/env")


@of("records")
def block_the_suite(_: SimpleNamespace) -> None:
    """A reader of this pipe would wait for ever."""
    os.mkfifo(scratch() / "benchmark.json")


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
    host, reached = SimpleNamespace(**json.loads(Path("places.json").read_text())), []
    if step == "setup":
        Path("built").write_text(os.environ["GPU_ADVISOR_ARM"])
    for name, attack in ATTACKS[step].items() if os.environ["GPU_ADVISOR_ARM"] == "head" else ():
        if name not in left_out:
            with contextlib.suppress(OSError, EOFError, ValueError):
                reached += [name] if attack(host) else []
                harm(f"{host.out}/reached", name) if name in reached else None
    if reached and "exit" not in left_out:
        sys.exit(f"REACHED {' '.join(reached)}")
    if step == "program":
        ordinary_work()
    print("throughput:", 50 + (os.getpid() % 7) / 100)


if __name__ == "__main__":
    main()
