"""Calls on engines, a part of which is killed at a random moment.

    python -m benchmarks.engine_kills [PART ...] [--times 20]

Each call tunes a light program. It must end in an answer or in a failure of a known kind, leave the
config whole, and leave nothing running after 35 s. SLURM and Ray have to be installed; their
clusters are those of the tests.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from advisor import errors
from tests.support import ray_cluster, slurm

ROOT = Path(__file__).resolve().parents[1]
CONFIG = b'{"batch_size": 1}\n'
PROGRAM = """\
import json, sys, time
batch = json.load(open(sys.argv[1]))["batch_size"]
while True:
    time.sleep(0.02 + 0.001 * batch)
    print("made", batch, flush=True)
"""
SETTINGS = """\
[workload.test]
command = "{python} -S program.py {{config}}"
config = "test.json"
phase = "test"
unit-regex = "made ([0-9]+)"

[engine.node]
command = "{engine}"
"""
FORGETFUL = ("controller", "head")
"""Killed, they forget jobs that had just ended, so each call has a cluster of its own."""
LATEST_S = 12.0
"""A call takes about twice as long."""
COMES_S = 15.0
GONE_S, ENDED_S = 35.0, 180.0


def kill_named(text: str, among: psutil.Process | None = None) -> bool:
    """Kill the first process with `text` in its command line, below `among` if given.

    It is waited for: a call takes a moment to start it.
    """
    deadline = time.monotonic() + COMES_S
    while time.monotonic() < deadline:
        for each in among.children(recursive=True) if among else psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if text in " ".join(each.cmdline()):
                    each.kill()
                    return True
        time.sleep(0.1)
    return False


def kill_daemon(name: str, *words: str) -> bool:
    """Kill a daemon of SLURM and start it again."""
    folder = Path(os.environ["SLURM_CONF"]).parent
    os.kill(int((folder / f"{name}.pid").read_text()), signal.SIGKILL)
    time.sleep(1)
    return not subprocess.run([*words, "-f", os.environ["SLURM_CONF"]], check=True).returncode


AGENT = "advisor.executor.engines.agent"
SRUN, RAY = "srun --gres=gpu:h100:1", "ray --accelerator-type=H100"
PARTS: dict[str, tuple[str, Callable[[psutil.Process], object]]] = {
    "agent": ("env", lambda call: kill_named(AGENT, call)),
    "driver": ("env", lambda call: call.kill() is None),
    "node daemon": (SRUN, lambda _: kill_daemon("slurmd-n2", "slurmd", "-N", "n2")),
    "controller": (SRUN, lambda _: kill_daemon("slurmctld", "slurmctld")),
    "worker": (RAY, lambda _: kill_named("ray::Pipe")),
    "head": (RAY, lambda _: kill_named("gcs_server")),
}
"""By part: the command of its engine, and what kills it; true if something was killed."""


@contextlib.contextmanager
def cluster_of(engine: str) -> Iterator[None]:
    """Cluster that `engine` needs."""
    with contextlib.ExitStack() as stack:
        if engine == SRUN:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-")))
            os.environ["SLURM_CONF"] = stack.enter_context(slurm.cluster(folder))["SLURM_CONF"]
        if engine == RAY:
            os.environ["RAY_ADDRESS"] = stack.enter_context(ray_cluster.cluster()).address
        yield


def outcome(name: str, after_s: float) -> str:
    """How one call ended, in a few words; bad ones begin with a capital."""
    engine, kill = PARTS[name]
    with tempfile.TemporaryDirectory(prefix="engine-kills-") as temporary:
        folder = Path(temporary)
        (folder / ".git").mkdir()
        (folder / "program.py").write_text(PROGRAM)
        (folder / "test.json").write_bytes(CONFIG)
        text = SETTINGS.format(python=sys.executable, engine=engine)
        (folder / "gpu-advisor.toml").write_text(text)
        words = ["optimize", "test.json", "--engine", "node", "--budget", "40s", "--window", "0.5s"]
        own = {"PYTHONPATH": str(ROOT), "GPU_ADVISOR_RUNTIME_DIR": temporary}
        paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        call = psutil.Popen(
            [sys.executable, "-m", "advisor", *words],
            cwd=folder,
            env={**os.environ, **own, "PATH": paths},
            stdout=subprocess.DEVNULL,
            stderr=(folder / "stderr").open("wb"),
        )
        time.sleep(after_s)
        killed = kill(call)
        try:
            end = verdict(folder, call.wait(ENDED_S))
        except psutil.TimeoutExpired:
            call.kill()
            end = "NO END"
        return end if killed else f"{end}, and nothing was killed"


def verdict(folder: Path, code: int) -> str:
    """Verdict on the end of a call in `folder`."""
    config, stderr = (folder / "test.json").read_bytes(), (folder / "stderr").read_text()
    if config != CONFIG and not isinstance(json.loads(config)["batch_size"], int):
        return "CONFIG SPOILED"
    if "Traceback" in stderr:
        return f"TRACEBACK {stderr[-400:]}"
    deadline = time.monotonic() + GONE_S
    while (left := running(folder)) and time.monotonic() < deadline:
        time.sleep(0.5)
    if left:
        return f"LEFT RUNNING {left}"
    if code in errors.OPTIMIZE_EXIT_CODES.values():
        return str(json.loads((folder / "report.json").read_text())["verdict"])
    found = [member for member in vars(errors).values() if isinstance(member, type)]
    kinds = {getattr(each, "exit_code", None): each.__name__ for each in found}
    return kinds.get(code) or ("killed" if code < 0 else f"EXIT {code}")


def running(folder: Path) -> list[str]:
    """Commands that name `folder`, or run in it."""
    found = []
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = " ".join(each.cmdline())
            if str(folder) in command or each.cwd().startswith(str(folder)):
                found.append(command[:80])
    return found


def main() -> None:
    """Print how the calls ended, by part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--times", type=int, default=20)
    args = parser.parse_args()
    print("| killed | calls | ended in |\n|:--|--:|:--|", flush=True)
    for name in args.parts or PARTS:
        ends = Counter[str]()
        while left := args.times - ends.total():
            with cluster_of(PARTS[name][0]):
                for _ in range(1 if name in FORGETFUL else left):
                    ends[outcome(name, random.uniform(0.5, LATEST_S))] += 1
        shown = ", ".join(f"{count} {end}" for end, count in ends.most_common())
        print(f"| {name} | {args.times} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
