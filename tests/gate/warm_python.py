"""An executable in the place of a Python: `-I -m` a module of ours is called warm, all else is
Python's.

The action begins gpu-advisor by the interpreter of an environment of its own. Where that is not
the rule, its imports, a second of CPU each time, were done before.
"""

from __future__ import annotations

import contextlib
import json
import socketserver
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.warm import Server

CLIENT = """\
#!{python} -IS
import json, os, socket, sys
if sys.argv[1:3] != ["-I", "-m"] or sys.argv[3].partition(".")[0] != "advisor":
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
streams = [f"/proc/{{os.getpid()}}/fd/{{number}}" for number in (1, 2)]
with socket.socket(socket.AF_UNIX) as door:
    door.connect({door!r})
    words = sys.argv[4:] if sys.argv[3] == "advisor" else sys.argv[2:]
    called = [words, os.getcwd(), dict(os.environ), *streams]
    door.sendall(json.dumps(called).encode() + b"\\n")
    sys.exit(int(door.makefile().readline()) & 255)
"""
LONGEST_S = 300.0


@contextlib.contextmanager
def warm_python(folder: Path, server: Server) -> Iterator[Path]:
    """The executable, in `folder`, while the context lasts; one call at a time."""

    class Call(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            argv, cwd, env, stdout, stderr = json.loads(self.rfile.readline())
            call = server.start(
                argv, cwd=Path(cwd), env=env, stdout=Path(stdout), stderr=Path(stderr)
            )
            self.wfile.write(f"{call.wait(LONGEST_S)}\n".encode())

    door, client = folder / "door", folder / "python"
    client.write_text(CLIENT.format(python=sys.executable, door=str(door)))
    client.chmod(0o755)
    with socketserver.UnixStreamServer(str(door), Call) as calls:
        threading.Thread(target=calls.serve_forever, args=(0.05,), daemon=True).start()
        yield client
        calls.shutdown()
