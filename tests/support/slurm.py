"""A SLURM cluster of two nodes on this host, for tests.

Debian's `slurmctld slurmd slurm-client munge`, as root, without cgroups or systemd:

    apt-get install --no-install-recommends slurmctld slurmd slurm-client munge
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.processes import free_port, ran

PROGRAMS = ("slurmctld", "slurmd", "srun", "munged")
NODES = {"n1": "rtx4060", "n2": "h100"}
"""Nodes, with the type of their made card."""
START_S = 60.0
CONF = """\
ClusterName=made
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=5
SlurmdTimeout=20
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=60 State=UP PriorityTier=1 PreemptMode=REQUEUE
PartitionName=urgent Nodes=ALL MaxTime=60 State=UP PriorityTier=10 PreemptMode=OFF
"""
NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=4000 "
    "Gres=gpu:{card}:1 Feature={card} State=UNKNOWN"
)


def why_not() -> str:
    """Reason why no cluster can be started here; empty where one can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} is not installed"
    return "" if os.geteuid() == 0 else "only root can start these daemons"


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Start a cluster whose files lie in `folder`; give the variables that its users need."""
    _configure(folder)
    environ = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    munge = folder / "munge"
    names = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log"}
    options = [f"--{name}={munge / file}" for name, file in {**names, "seed-file": "seed"}.items()]
    try:
        # by another name than `slurmctld` the daemon drops all cards without a word
        for command in (
            ["munged", "--force", *options],
            ["slurmctld", "-f", environ["SLURM_CONF"]],
            *(["slurmd", "-N", name, "-f", environ["SLURM_CONF"]] for name in NODES),
        ):
            subprocess.run(command, env=environ, check=True)
        _wait_until_idle(environ)
        yield environ
    finally:
        for file in (*(f"slurmd-{name}.pid" for name in NODES), "slurmctld.pid", "munge/pid"):
            _end(folder / file)


def _end(pid_file: Path) -> None:
    """End the daemon of a pid file, and wait for it."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(pid_file.read_text())
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + START_S
        while Path(f"/proc/{pid}/exe").exists() and time.monotonic() < deadline:
            time.sleep(0.1)


def _configure(folder: Path) -> None:
    """Write the configuration, a key and made cards: slurmd wants character devices."""
    host = socket.gethostname().partition(".")[0]
    port = min(free_port(), 60_000)  # the next two are free, too, as far as one can tell
    for name in ("state", "munge", *(f"spool-{name}" for name in NODES)):
        (folder / name).mkdir(parents=True, exist_ok=True)
    nodes, cards = [], []
    for number, (name, card) in enumerate(NODES.items(), 1):
        device = folder / f"card-{name}"
        os.mknod(device, 0o20666, os.makedev(1, 3))
        nodes.append(NODE.format(name=name, host=host, port=port + number, card=card))
        cards.append(f"NodeName={name} Name=gpu Type={card} File={device}")
    text = CONF.format(host=host, port=port, folder=folder, nodes="\n".join(nodes))
    (folder / "slurm.conf").write_text(text)
    (folder / "gres.conf").write_text("\n".join([*cards, ""]))
    (folder / "munge").chmod(0o755)
    key = folder / "munge/key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)


def _wait_until_idle(environ: dict[str, str]) -> None:
    deadline, found = time.monotonic() + START_S, ""
    while time.monotonic() < deadline:
        command = ["sinfo", "--noheader", "--format=%N %T", "--Node", "--partition=main"]
        found = ran(*command, env=environ).stdout
        if sorted(found.split("\n"))[1:] == [f"{name} idle" for name in NODES]:
            return
        time.sleep(0.3)
    msg = f"the nodes did not come up: {found!r}"
    raise RuntimeError(msg)
