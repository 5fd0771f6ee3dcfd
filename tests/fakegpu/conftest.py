"""Programs of torch's CUDA build over simulated cards, measured as users' programs are."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import fakegpu
from tests.fakegpu import Cards, measuring
from tests.fakegpu.measuring import Measured

Measure = Callable[..., Measured]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder needs the CUDA build, or says why it is not there."""
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    why = fakegpu.missing() if here else None
    for item in here:
        for mark in (pytest.mark.cuda_build, pytest.mark.slow, pytest.mark.nightly):
            item.add_marker(mark)
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture
def measured(tmp_path: Path, request: pytest.FixtureRequest) -> Measure:
    """Measures a fixture program in one trial over simulated cards."""

    def run(
        program: str,
        *words: str,
        cards: tuple[str, ...] = ("rtx-3090",),
        card: Mapping[str, float] | None = None,
        **how: Any,
    ) -> Measured:
        shown = Cards(*cards, **(card or {}))
        request.addfinalizer(lambda: shown.__exit__())
        folder = tmp_path / f"trial-{len(list(tmp_path.iterdir()))}"
        return measuring.measure(folder, shown, program, *words, **how)

    return run
