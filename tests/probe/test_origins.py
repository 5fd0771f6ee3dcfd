"""Which project files were loaded is told of every thread, whatever the others do meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from advisor.probe.origins import FILE

if TYPE_CHECKING:
    from pathlib import Path

MODULES = 3_000
OPENS_AND_RUNS = f"""
import sys, threading, types
from advisor.probe.origins import Origins

root, records = sys.argv[1:]
asked = {{"roots": [root], "names": ["named.txt"]}}
Origins(types.SimpleNamespace(spec={{"origins": asked}}, records=records)).watch()
done = threading.Event()

def reader():
    while not done.is_set():
        open("named.txt").close()  # a relative path is looked up each time

threading.Thread(target=reader).start()
for number in range({MODULES}):
    exec(compile("", f"{{root}}/module{{number}}.py", "exec"))
done.set()
"""


def test_what_runs_while_another_thread_opens_files_is_told(tmp_path: Path) -> None:
    root, records = tmp_path / "root", tmp_path / "records"
    root.mkdir()
    records.mkdir()
    (tmp_path / "named.txt").write_text("x")
    subprocess.run(
        [sys.executable, "-c", OPENS_AND_RUNS, str(root), str(records)],
        cwd=tmp_path,
        check=True,
        timeout=60,
    )
    told = [json.loads(line) for line in (records / FILE).read_text().splitlines()]
    ran = {line["path"] for line in told if line["how"] == "ran"}
    assert ran == {f"{root}/module{number}.py" for number in range(MODULES)}
