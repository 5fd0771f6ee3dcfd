"""The hooks in the test's own process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from advisor.probe import hooks
from advisor.probe.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """The probe at work here, never stopping the process, and without an error of its own."""
    torch.set_num_threads(1)
    session = Session({"records": str(tmp_path), "plan": {"mode": "observe"}})
    hooks.install(torch, session)
    yield session
    session.patches.undo()
    assert session.errors == []
