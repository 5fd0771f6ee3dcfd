"""Memory of loader workers: what they share with their parent counts once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from advisor.probe import record

PARENT = """
import os, sys, time
held = b"x" * (200 << 20)
child = os.fork()
if not child:
    own = b"y" * (int(sys.argv[1]) << 20)
    print(os.getpid(), flush=True)
    time.sleep(60)
os.waitpid(child, 0)
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's smaps")
@pytest.mark.parametrize(("own_mib", "least", "most"), [(0, 0.0, 0.1), (200, 0.19, 0.3)])
def test_pages_forked_from_the_parent_count_once(own_mib: int, least: float, most: float) -> None:
    """Many workers read what their parent read before; only what is their own is added."""
    command = [sys.executable, "-c", PARENT, str(own_mib)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            assert least <= record._private_gib(child) <= most
        finally:
            subprocess.run(["pkill", "-KILL", "-s", str(parent.pid)], check=False)
