"""The setup command: how it fails, and that it leaves nothing running."""

from __future__ import annotations

import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from advisor.errors import InterruptedByUserError
from advisor.gate.checkout import Checkout
from advisor.gate.schema import Revision
from advisor.gate.setup_step import set_up
from advisor.sandbox.capabilities import FORCED

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(FORCED, "guard")
    checkout = Checkout(top=tmp_path, cwd=tmp_path, revision=Revision())

    def call(
        command: str, limit_s: float = 60, cancel: threading.Event | None = None
    ) -> str | None:
        return set_up(
            checkout, command, {"GPU_ADVISOR_ARM": "head"},
            scratch=tmp_path / "scratch", limit_s=limit_s, cancel=cancel or threading.Event(),
        )  # fmt: skip

    return call


def test_a_failure_shows_code_and_last_lines(ran) -> None:
    failed = ran("seq 100; echo no compiler >&2; exit 2")
    assert failed is not None
    assert "exit code 2" in failed
    assert "no compiler" in failed
    assert len(failed.splitlines()) == 20


def alive(marker: str) -> bool:
    return bool(subprocess.run(["pgrep", "-f", marker], capture_output=True, check=False).stdout)


def test_a_limit_ends_it_and_all_that_it_started(ran) -> None:
    failed = ran("(sleep 31.4159 &) ; sleep 31.4159", limit_s=0.5)
    assert failed is not None
    assert "did not end" in failed
    assert not alive("sleep 31.4159")


def test_an_interruption_ends_it(ran) -> None:
    cancel = threading.Event()
    threading.Timer(0.5, cancel.set).start()
    with pytest.raises(InterruptedByUserError):
        ran("sleep 2718.28", cancel=cancel)
    assert not alive("sleep 2718.28")
