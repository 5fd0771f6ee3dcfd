"""Each wall that a policy promises is tried before it counts, and one that is missing is told."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import IsolationError
from advisor.sandbox import selftest
from advisor.sandbox.capabilities import FORCED
from advisor.sandbox.policy import SandboxPolicy
from tests.sandbox.conftest import ROOT
from tests.support.processes import ran

REFUSE = Path(__file__).with_name("refuse.py")
DETECTS = """
import json, sys
from advisor.errors import AdvisorError
from advisor.sandbox.capabilities import detect_isolation, require_walls
own, foreign = (detect_isolation(sys.argv[1], foreign=each) for each in (False, True))
try: refusal, code = require_walls(sys.argv[1]) or "", 0
except AdvisorError as problem: refusal, code = str(problem), problem.exit_code
print(json.dumps([own.kind, own.notes, foreign.kind, refusal, code]))
"""


def detected(folder: Path, refused: str) -> list[object]:
    """What a host that refuses some calls offers: own, notes, foreign, refusal, its exit code."""
    env = {name: value for name, value in os.environ.items() if name != FORCED}
    words = (sys.executable, str(REFUSE), refused, sys.executable, "-c", DETECTS, str(folder))
    done = ran(*words, cwd=ROOT, env=env)
    assert done.returncode == 0, done.stderr
    found: list[object] = json.loads(done.stdout)
    return found


def test_where_no_call_can_be_decided_on_a_trial_says_so(tmp_path) -> None:
    """Landlock alone knows no modes, times and attributes."""
    own, notes, *_ = detected(tmp_path, "unshare,seccomp")
    assert own == "landlock"
    assert "modes, times and attributes" in str(notes)
    assert "seccomp: Operation not permitted" in str(notes)


def test_where_no_call_can_be_decided_on_foreign_code_is_refused(tmp_path) -> None:
    """With the wall that is missing, and its own exit code."""
    *_, foreign, refusal, code = detected(tmp_path, "unshare,seccomp")
    assert foreign == "guard"
    assert "seccomp" in str(refusal)
    assert code == IsolationError.exit_code


def test_where_all_walls_stand_nothing_is_said(tmp_path) -> None:
    assert detected(tmp_path, "unshare")[:4] == ["landlock", [], "landlock", ""]


def test_a_host_without_any_isolation_is_no_refusal(tmp_path) -> None:
    """The gate tells what that means, and refuses code of forks alone."""
    own, _, foreign, refusal, _ = detected(tmp_path, "unshare,landlock_create_ruleset,seccomp")
    assert own == "guard"
    assert foreign == "guard"
    assert refusal == ""


BROKEN = {
    "a write that it should deny": ("landlock", "landlock.RIGHTS = {1: landlock.WRITE_FILE}"),
    "a change of a mode": ("landlock", "deputies.metadata = lambda _: ()"),
    "a change of a time": (
        "landlock", "deputies.CHANGES = [each for each in deputies.CHANGES if each[0] != 280]",
    ),
    "io_uring": ("landlock", "deputies.UNKNOWN_TO_LANDLOCK = ()"),
    "a connection to a hidden socket": ("landlock", "deputies.connecting = lambda *_, **__: ()"),
    "a connection to the host": ("landlock", "deputies._is_own_server = lambda _: True"),
    "a signal to a process outside": (
        "landlock", "landlock.SCOPES_SINCE = 99; deputies.others = lambda **_: ()",
    ),
    "another's CPUs": ("landlock", "deputies.others = lambda **_: ()"),
    "memory shared by number": ("landlock", "deputies.SHARED_BY_NUMBER = ()"),
    "a write to the project": (
        "overlay", "overlay._lay_over = lambda below, to, _: kernel.bind(below, to, deep=True)",
    ),
    "a connection to a socket without a file": ("overlay", "kernel.CLONE_NEWNET = 0"),
    "a key ring": ("overlay", "deputies.KEYS = ()"),
    "a read of a hidden file": ("overlay", "untrusted.hide = lambda *_: None"),
    "a write to the kernel's settings": ("overlay", "overlay._shut_kernel = lambda _: None"),
    "a capability": ("overlay", "kernel.KEPT = 1 << 21 | 0x7fff"),
}  # fmt: skip
"""What leaves out each wall that is tried."""
NEEDS_ROOT = {"a write to the kernel's settings", "a capability"}
TRIES = """
import json, sys
from advisor.sandbox import deputies, kernel, landlock, overlay, selftest, untrusted
import advisor
held = kernel.KEPT
exec(sys.argv[1])
if "KEPT" in sys.argv[1]: selftest.kernel = type("Held", (), {"KEPT": held})
print(json.dumps(selftest.problem_of(**json.loads(sys.argv[2]))))
"""


@pytest.mark.parametrize("wall", BROKEN)
def test_a_wall_that_does_not_stand_is_found(tmp_path, wall) -> None:
    """As if the kernel, or a version of this package, had left it out."""
    if wall in NEEDS_ROOT and os.geteuid() != 0:
        pytest.skip("only root could get through")
    kind, without = BROKEN[wall]
    if wall == "io_uring" and selftest._call(425, 425, 1, bytearray(120)) < 0:
        pytest.skip("the kernel has none")
    for folder in ("layers", "hidden", "project"):
        (tmp_path / folder).mkdir()
    policy = SandboxPolicy(
        kind=kind,  # type: ignore[arg-type]
        layers=str(tmp_path / "layers"),
        foreign=True,
        hidden=(str(tmp_path / "hidden"),),
        network=False,
    )
    given: dict[str, Any] = {
        "policy": asdict(policy),
        "cwd": str(tmp_path / "project"),
        "hidden": str(tmp_path / "hidden"),
    }
    with socket.create_server(("127.0.0.1", 0)) as server:
        given["port"] = server.getsockname()[1]
        words = (sys.executable, "-c", TRIES, without, json.dumps(given))
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == f"{wall} went through"


def test_each_wall_that_is_tried_is_left_out_above() -> None:
    tried = set()
    for kind in ("overlay", "landlock"):
        policy = SandboxPolicy(kind=kind, foreign=True, network=False)  # type: ignore[arg-type]
        outside = selftest.Outside(".", "hidden", 1, "name", port=1, ipc=1, device=1)
        tried |= {wall for wall, _ in selftest._walls(asdict(policy), outside)}
    assert tried == BROKEN.keys()


def test_a_long_name_of_a_temporary_folder_spoils_no_test(tmp_path) -> None:
    """Names of sockets have at most 107 bytes."""
    long = tmp_path / ("x" * 120)
    long.mkdir()
    env = {**os.environ, "TMPDIR": str(long)}
    env.pop(FORCED, None)
    done = ran(sys.executable, "-c", DETECTS, str(tmp_path), cwd=ROOT, env=env)
    own, _, foreign, refusal, _ = json.loads(done.stdout)
    assert foreign == own
    assert refusal == ""
    assert list(long.iterdir()) == []
