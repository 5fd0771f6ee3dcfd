"""Every test's own repository."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from tests.gate.repos import Repo, base_and_head, new_repo

if TYPE_CHECKING:
    from pathlib import Path

    from tests import warm


@pytest.fixture
def repo(tmp_path: Path, gpu_advisor: warm.Server) -> Repo:
    """An empty repository on branch main."""
    return new_repo(tmp_path, gpu_advisor)


@pytest.fixture
def two(repo: Repo):
    """Makes base and head of one program: `two("print(1)", "print(2)")`."""
    return functools.partial(base_and_head, repo)
