"""Edits that somebody saves while their config is being replaced; `benchmarks.kills` runs them."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections import Counter
from typing import TYPE_CHECKING

from advisor.config import originals, swap
from advisor.errors import AdvisorError
from tests.support.rewriting import ORIGINAL, Failures, child, rewrite, strays

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

MOMENTS = (".draft", ".swap")
"""How the names end of the files that a replacement in progress shows."""


def edits(count: int, folder: Path, chance: random.Random, failures: Failures) -> dict[str, int]:
    """Save the config while it is being replaced, `count` times."""
    done: Counter[str] = Counter()
    config = folder / "e" / "c.json"
    for number in range(count):
        shutil.rmtree(config.parent, ignore_errors=True)
        config.parent.mkdir()
        config.write_bytes(ORIGINAL)
        edited = ORIGINAL.replace(b'"workers": 4', f'"workers": {100 + number}'.encode())
        how = ("rename", "truncate", "overwrite")[number % 3]
        delay_s = chance.choice([0.0, chance.uniform(0, 5e-5), chance.uniform(0, 1e-3)])
        pid, pipe = child(lambda: edit(config, edited, how, delay_s))  # noqa: B023  it is forked
        os.read(pipe, 0)
        with counted_exchanges() as exchanges:
            try:
                rewrite(config)
                done["edit after the write"] += 1
            except AdvisorError:
                done["edit came out and was put back" if exchanges else "edit came first"] += 1
        _, status = os.waitpid(pid, 0)
        os.close(pipe)
        if status:
            failures.note(f"edit {number}: the editor ended with {status}")
        if config.read_bytes() != edited:
            failures.note(f"edit {number} ({how}) is lost: {config.read_bytes()[:60]!r}")
        originals.recover(config)
        if stray := strays(config):
            failures.note(f"edit {number} ({how}): left behind: {stray}")
    return dict(done)


@contextlib.contextmanager
def counted_exchanges() -> Iterator[list[None]]:
    """As many entries as exchanges there were meanwhile."""
    seen: list[None] = []
    plain = swap.exchange

    def counted(one: Path, other: Path) -> bool:
        seen.append(None)
        return plain(one, other)

    swap.exchange = counted
    try:
        yield seen
    finally:
        swap.exchange = plain


def edit(config: Path, edited: bytes, how: str, delay_s: float) -> None:
    """Save `edited` as an editor does, once the file that replaces the config is there."""
    draft = config.with_name("mine~")
    if how == "rename":
        draft.write_bytes(edited)
    number = config.stat().st_ino
    limit = time.monotonic() + 2.0
    while time.monotonic() < limit:
        names = os.listdir(config.parent)  # noqa: PTH208  as fast as can be
        if any(name.endswith(MOMENTS) for name in names) or config.stat().st_ino != number:
            break
    until = time.perf_counter() + delay_s
    while time.perf_counter() < until:
        pass
    if how == "rename":
        draft.replace(config)
    elif how == "truncate":
        config.write_bytes(edited)
    else:
        with config.open("r+b") as file:
            file.write(edited)
            file.truncate()
