"""Pipe to a command on a node of a Ray cluster, run by the Python of `ray`.

    python ray_pipe.py [--address X] [--num-gpus N] [--num-cpus N] [--accelerator-type X] -- COMMAND

COMMAND gets our stdin, and its output is ours. Only Ray and Python's own modules are
imported: the cluster's Python need not have gpu-advisor.
"""

import argparse
import contextlib
import importlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

APART = ("sh", "-c", 'exec 3<&0; "$@" <&3 3<&- & exec 3<&- <&-; wait "$!"', "sh")
"""Start a command as a grandchild: Ray kills a worker's children before they tidy up.

A shell starts it in the background and waits. Its input goes by way of descriptor 3, since a shell
gives what runs in the background an empty one.
"""
SET_BY_RAY = ("OMP_NUM_THREADS",)
"""Variables that Ray sets in a worker, not the user."""
SOON_S = 3.0
"""Seconds until the first sentence on a wait.

Judgement: shorter speaks of waits that end at once, longer leaves the user without a word."""
SAY_S = 10.0
"""Seconds between two such sentences, and the longest wait for an answer of Ray's head.

Judgement: shorter fills the screen and gives up a slow head, longer looks as if all hung."""
PIECE = 1 << 16
"""Bytes passed on at once: all that a pipe holds, with pages of 4 KiB (pipe(7))."""
LAST_WORDS_S = 5.0
"""Longest wait, in seconds, for the rest of the agent's errors after its end.

Judgement: shorter loses lines that tell why it ended, longer waits for a worker that is gone."""
TRIES = 3
"""Actors that are asked for, if a node dies before one has started.

Judgement: fewer ends a call for one dead node, more waits long where every node dies."""


class Pipe:
    """Command on this actor's node."""

    def __init__(self, command: list[str]) -> None:
        environ = {
            name: text for name, text in os.environ.items() if name not in SET_BY_RAY
        }
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [*APART, *command], env=environ, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0
        )

    def ready(self) -> None:
        """Return once the actor has its node."""

    def write(self, data: bytes) -> None:
        """Write `data`; empty closes the pipe."""
        stream = self._process.stdin
        assert stream is not None
        with contextlib.suppress(OSError):  # its reader has gone, which `wait` tells
            if data:
                stream.write(data)
            else:
                stream.close()

    def read(self, name: str) -> bytes:
        """Read a stream's next bytes; empty at its end."""
        return os.read(getattr(self._process, name).fileno(), PIECE)

    def wait(self) -> int:
        return self._process.wait()


def main() -> None:
    """Carry bytes until the command ends."""
    if Path(sys.path[0]) == Path(__file__).parent:
        del sys.path[0]  # the modules beside this one are none of Ray's
    ray: Any = importlib.import_module("ray")
    asked = _arguments()
    try:
        _require_answer(asked.address)
        ray.init(address=asked.address, log_to_driver=False, logging_level="ERROR")
    except Exception as problem:
        sys.exit(f"ray: no cluster answers at {asked.address}: {problem}")
    wanted = _wanted(ray, asked)
    pipe = ray.remote(max_concurrency=4, **wanted)(Pipe)
    try:
        actor = _started(ray, lambda: pipe.remote(asked.command), wanted)
    except Exception as problem:
        sys.exit(f"ray: the worker was lost: {' '.join(str(problem).split())}")
    threading.Thread(target=_carry_in, args=(ray, actor), daemon=True).start()
    errors = threading.Thread(target=_carry_errors, args=(ray, actor), daemon=True)
    errors.start()
    try:
        _carry_out(ray, actor, "stdout", 1)
        code = ray.get(actor.wait.remote())
        errors.join(LAST_WORDS_S)
    except Exception as problem:  # the worker, its node or the head is gone
        _say(f"ray: the worker was lost: {' '.join(str(problem).split())}")
        code = 1
    os._exit(code)


def _started(ray: Any, start: Callable[[], Any], wanted: dict[str, Any]) -> Any:
    """Actor that has its node.

    Another is asked for if a node dies before: Ray notices late, and still sends actors
    there. Raises Ray's error for the last.
    """
    for tries_left in reversed(range(TRIES)):
        actor, wait_s = start(), SOON_S
        ready = actor.ready.remote()
        while not ray.wait([ready], timeout=wait_s)[0]:
            wait_s = SAY_S
            free = _shown(ray.available_resources())
            _say(f"ray: waiting for {_shown(wanted)}; free now: {free}")
        try:
            ray.get(ready)
        except Exception:
            if not tries_left:
                raise
            _say("ray: the node was lost before the start; asking for another")
        else:
            return actor
    raise AssertionError(TRIES)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ray", allow_abbrev=False)
    parser.add_argument("--address", default="auto")
    parser.add_argument(
        "--num-gpus", type=float, help="default: 1, where the cluster has any"
    )
    parser.add_argument("--num-cpus", type=float, default=1.0)
    parser.add_argument("--accelerator-type")
    parser.add_argument("command", nargs="+")
    return parser.parse_args()


def _require_answer(address: str) -> None:
    """Raise OSError where nobody listens: Ray would try for minutes."""
    named = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    host, colon, port = named.rpartition("//")[2].rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), SAY_S).close()


def _wanted(ray: Any, asked: argparse.Namespace) -> dict[str, Any]:
    """Options of the actor; exit if no node could ever hold them."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    cards = any(node.get("GPU") for node in nodes)
    gpus = float(cards) if asked.num_gpus is None else asked.num_gpus
    kind = asked.accelerator_type
    resources = {f"accelerator_type:{kind}": 0.001} if kind else {}
    resources_asked = {"CPU": asked.num_cpus, "GPU": gpus, **resources}
    for node in nodes:
        if all(node.get(name, 0.0) >= count for name, count in resources_asked.items()):
            return {"num_cpus": asked.num_cpus, "num_gpus": gpus, "resources": resources}
    offered = "; ".join(map(_shown, nodes))
    sys.exit(f"ray: no node has {_shown(resources_asked)}. The nodes have: {offered}")


def _shown(resources: dict[str, Any]) -> str:
    """`1 CPU, 1 GPU, H100`."""
    flat = {**resources, **resources.get("resources", {})}
    names = {"num_cpus": "CPU", "num_gpus": "GPU", "CPU": "CPU", "GPU": "GPU"}
    parts = [f"{flat[key]:g} {name}" for key, name in names.items() if flat.get(key)]
    kinds = [key.partition(":")[2] for key in flat if key.startswith("accelerator_type:")]
    return ", ".join((*parts, *kinds)) or "nothing"


def _carry_in(ray: Any, actor: Any) -> None:
    with contextlib.suppress(Exception):  # the other direction tells of a lost worker
        while data := os.read(0, PIECE):
            ray.get(actor.write.remote(data))
        ray.get(actor.write.remote(b""))


def _carry_errors(ray: Any, actor: Any) -> None:
    with contextlib.suppress(Exception):  # the same
        _carry_out(ray, actor, "stderr", 2)


def _carry_out(ray: Any, actor: Any, name: str, sink: int) -> None:
    while data := ray.get(actor.read.remote(name)):
        while data:
            data = data[os.write(sink, data) :]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
