"""Every test's own repository."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import warm
from tests.gate import repos

NewRepo = Callable[[Path], repos.Repo]


@pytest.fixture(scope="session")
def new_repo(gpu_advisor: warm.Server) -> NewRepo:
    """Makes an empty repository on branch main in a folder."""
    return functools.partial(repos.new_repo, gpu_advisor=gpu_advisor)


@pytest.fixture
def repo(tmp_path: Path, new_repo: NewRepo) -> repos.Repo:
    return new_repo(tmp_path)


@pytest.fixture
def two(repo: repos.Repo) -> Callable[[str, str], repos.Repo]:
    """Makes base and head of one program: `two("print(1)", "print(2)")`."""
    return repo.of
