"""The tool on a host with several equal cards, simulated."""

import pytest

from tests.support.several_cards import tuned

pytest.importorskip("torch")


@pytest.mark.slow
@pytest.mark.nightly
def test_four_cards_tune_one_config(tmp_path) -> None:
    """Trials run on all of them at once; a kernel takes equally long at any batch."""
    written, progress = tuned(tmp_path, 4, "--evaluate")
    assert '"batch_size": 4096' in written
    assert "4 equal cards" in progress
