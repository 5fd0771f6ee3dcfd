"""`gpu-advisor gpus`: the profiles and their sources."""

import json

import pytest

from advisor.__main__ import dispatch
from advisor.errors import TargetError
from advisor.machine import profiles


def test_every_profile_is_listed_with_its_source(capsys) -> None:
    assert dispatch(["gpus", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {card["name"] for card in found["gpus"]} == profiles.load_all().keys()
    assert all(card["source"] for card in found["gpus"])
    compared = {card["name"]: card["compared"] for card in found["gpus"]}
    assert "inference" in compared["rtx-3090"]
    assert compared["t4"] == []


def test_one_card_is_told_with_its_source(capsys) -> None:
    assert dispatch(["gpus", "RTX 3090"]) == 0
    shown = capsys.readouterr().out
    assert profiles.by_name("rtx-3090").source in shown
    with pytest.raises(TargetError):
        dispatch(["gpus", "rtx-9999"])
