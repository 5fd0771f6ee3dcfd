"""A Ray cluster of two nodes with made cards on this host, for tests."""

import contextlib
import importlib.util
import subprocess
import sys
import threading
from collections.abc import Iterator

START_S = 120.0
CLUSTER = """\
import sys
from ray.cluster_utils import Cluster

def node(card, cpus):
    kind = {f"accelerator_type:{card}": 1}
    return {"num_cpus": cpus, "num_gpus": 1, "resources": kind, "object_store_memory": 10**8}

head = {**node("RTX4060", 1), "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=head)
large = cluster.add_node(**node("H100", 2))
print(cluster.address, flush=True)
for line in sys.stdin:
    cluster.remove_node(large, allow_graceful=False)
    large = cluster.add_node(**node("H100", 2))
    print("replaced", flush=True)
cluster.shutdown()
"""


def why_not() -> str:
    """Reason why no cluster can be started here; empty where one can."""
    return "" if importlib.util.find_spec("ray") else "ray is not installed"


class Cluster:
    """Two nodes: an RTX 4060 with one CPU, an H100 with two."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.address = self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def replace_the_large_node(self) -> None:
        """Kill the node of the H100 and start another like it."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        assert self._answer() == "replaced"


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """Start a cluster and end it; `ray stop` would end everybody's.

    Where none starts, its address is empty.
    """
    command = [sys.executable, "-c", CLUSTER]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        patience = threading.Timer(START_S, process.kill)
        patience.start()
        found = Cluster(process)
        patience.cancel()
        yield found
        assert process.stdin is not None
        process.stdin.close()
