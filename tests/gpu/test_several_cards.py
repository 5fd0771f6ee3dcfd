"""The tool on a host with several equal cards, simulated."""

import pytest

from tests.support.several_cards import tuned

pytest.importorskip("torch")


@pytest.mark.slow
def test_four_cards_tune_what_one_card_tunes(tmp_path) -> None:
    """Trials run on all of them at once."""
    alone, _ = tuned(tmp_path / "one", 1, "--evaluate")
    written, progress = tuned(tmp_path / "four", 4, "--evaluate")
    assert written == alone
    assert '"batch_size": 4,' not in written
    assert "4 equal cards" in progress
