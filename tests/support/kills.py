"""Rewrites of a config that are killed, edited or out of disk halfway."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import advisor
from advisor import config as documents
from advisor.commands.revert import revert
from advisor.config import originals
from advisor.config.originals import Versions
from advisor.errors import AdvisorError, RevertConflictError
from advisor.state import state_folder
from tests.runs import a_change

ORIGINAL = b'{\n  "batch_size": 1,\n  "workers": 4, "note": "' + b"n" * 3000 + b'"\n}\n'
TUNED = ORIGINAL.replace(b'"batch_size": 1', b'"batch_size": 8')
PACKAGE = str(Path(advisor.__file__).parent)
MOMENTS = ("-draft", ".swap")
"""How the names end of the files that a replacement in progress shows."""
PAGE = 4096
PAGES = 16
"""A disk with so many pages left holds a whole rewrite."""


def rewrite(config: Path) -> None:
    """What `optimize` does at its beginning and at its end."""
    originals.recover(config)
    kept = Versions(state_folder(config.parent), config)
    with kept.held():
        document = documents.read(config)
        new = document.with_values({"batch_size": 8})
        version = kept.keep(document, new, [a_change(document=str(config))])
        try:
            documents.write_atomic(config, new, document.raw)
        except AdvisorError:
            kept.forget(version)
            raise


def undo(config: Path) -> None:
    """What `revert` does."""
    revert([config])


def child(work: Callable[[], object], stop_at: int | None = None) -> tuple[int, int]:
    """Pid of a child that does `work`, and the pipe on which it tells how many lines it ran.

    With `stop_at` it kills itself before that line.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            count += 1
            if count == stop_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    code = 1
    try:
        if stop_at is not None:
            sys.settrace(trace)
        work()
        sys.settrace(None)
        code = 0
    finally:
        os.write(writing, str(count).encode())
        os._exit(code)


def fresh(folder: Path, *, rewritten: bool) -> Path:
    """A project with one config, in an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    config = folder / "c.json"
    config.write_bytes(ORIGINAL)
    config.chmod(0o600)
    if rewritten:
        rewrite(config)
    return config


def strays(config: Path) -> list[str]:
    """Files of ours that should be gone: beside the config, and drafts in the state folder."""
    expected = {config.name, ".gpu-advisor"}
    beside = [path.name for path in config.parent.iterdir() if path.name not in expected]
    state = config.parent / ".gpu-advisor"
    return beside + [path.name for path in state.rglob("*draft*")]


def assert_whole(config: Path, where: str) -> None:
    """The config is one of the two, and the next calls do what they say and leave nothing."""
    found = config.read_bytes()
    assert found in {ORIGINAL, TUNED}, where
    undone, refused = 0, ""
    try:
        undone = revert([config])[config]
    except RevertConflictError as problem:
        refused = str(problem)
    assert not refused or "never rewritten" in refused, where
    assert config.read_bytes() == ORIGINAL, where
    assert undone == (found == TUNED), where
    rewrite(config)
    assert config.read_bytes() == TUNED, where
    assert revert([config]) == {config: 1}, where
    assert config.read_bytes() == ORIGINAL, where
    assert strays(config) == [], where


def kill_at_lines(folder: Path, every: int) -> int:
    """Kill the write and the revert at every so many of their lines; how often that was."""
    killed = 0
    config = folder / "c.json"
    for work in (rewrite, undo):
        fresh(folder, rewritten=work is undo)
        pid, pipe = child(lambda: work(config), stop_at=0)  # noqa: B023  it is forked
        os.waitpid(pid, 0)
        with os.fdopen(pipe) as output:
            lines = int(output.read())
        for line in range(1, lines + 1, every):
            fresh(folder, rewritten=work is undo)
            pid, pipe = child(lambda: work(config), stop_at=line)  # noqa: B023
            killed += os.WIFSIGNALED(os.waitpid(pid, 0)[1])
            os.close(pipe)
            assert_whole(config, f"{work.__name__}, line {line} of {lines}")
    return killed


def on_a_full_disk(folder: Path) -> Counter[str]:
    """Write and revert with only so many pages left; how often each was done and refused."""
    done: Counter[str] = Counter()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(folder)], check=True
    )  # fmt: skip
    try:
        for work in (rewrite, undo):
            for pages in range(PAGES):
                where = f"{work.__name__} with {pages} pages left"
                config = fresh(folder / "p", rewritten=work is undo)
                filled = folder / "filler"
                with contextlib.suppress(OSError), filled.open("wb", buffering=0) as file:
                    while True:
                        file.write(b"x" * PAGE)
                os.truncate(filled, max(0, filled.stat().st_size - PAGE * pages))
                before, refused = config.read_bytes(), ""
                try:
                    work(config)
                except AdvisorError as problem:
                    refused = str(problem)
                done["refused" if refused else "done"] += 1
                if refused:
                    assert "No space left" in refused, where
                    assert config.read_bytes() == before, where
                filled.unlink()
                assert_whole(config, where)
                shutil.rmtree(folder / "p")
    finally:
        subprocess.run(["umount", str(folder)], check=False)
    return done


def save_amid_rewrites(count: int, folder: Path, chance: random.Random) -> None:
    """Save the config while it is being replaced, `count` times: no edit is lost."""
    for number in range(count):
        config = fresh(folder, rewritten=False)
        edited = ORIGINAL.replace(b'"workers": 4', f'"workers": {100 + number}'.encode())
        in_place = bool(number % 2)
        delay_s = chance.choice([0.0, chance.uniform(0, 5e-5), chance.uniform(0, 1e-3)])
        pid, pipe = child(lambda: save(config, edited, in_place, delay_s))  # noqa: B023
        with contextlib.suppress(AdvisorError):
            rewrite(config)
        assert os.waitpid(pid, 0)[1] == 0
        os.close(pipe)
        assert config.read_bytes() == edited, f"edit {number}"
        originals.recover(config)
        assert strays(config) == [], f"edit {number}"


def save(config: Path, edited: bytes, in_place: bool, delay_s: float) -> None:
    """Save `edited` as an editor does, once the file that replaces the config is there."""
    draft = config.with_name("mine~")
    draft.write_bytes(edited)
    number = config.stat().st_ino
    limit = time.monotonic() + 2.0
    while time.monotonic() < limit and config.stat().st_ino == number:
        names = os.listdir(config.parent)  # noqa: PTH208  as fast as can be
        if any(name.endswith(MOMENTS) for name in names):
            break
    until = time.perf_counter() + delay_s
    while time.perf_counter() < until:
        pass
    if in_place:
        config.write_bytes(edited)
        draft.unlink()
    else:
        draft.replace(config)
