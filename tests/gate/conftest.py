"""Every test's own repository."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from tests.gate import repos
from tests.gate.repos import Repo, base_and_head

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests import warm


@pytest.fixture(scope="session")
def new_repo(
    tmp_path_factory: pytest.TempPathFactory, gpu_advisor: warm.Server
) -> Callable[[Path], Repo]:
    """Makes an empty repository on branch main in a folder, see `repos.new_repo`."""
    empty = tmp_path_factory.mktemp("repository")
    repos.make_empty(empty)
    return functools.partial(repos.new_repo, empty=empty, gpu_advisor=gpu_advisor)


@pytest.fixture
def repo(tmp_path: Path, new_repo: Callable[[Path], Repo]) -> Repo:
    """An empty repository on branch main."""
    return new_repo(tmp_path)


@pytest.fixture
def two(repo: Repo):
    """Makes base and head of one program: `two("print(1)", "print(2)")`."""
    return functools.partial(base_and_head, repo)
