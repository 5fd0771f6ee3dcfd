"""The profiles are data: consistent with each other, and found by a card's real name."""

import tomllib
from collections import Counter

import pytest

from advisor.errors import TargetError
from advisor.machine import profiles

ALL = profiles.load_all()
TABLES = tomllib.loads(profiles.FILE.read_text(encoding="utf-8"))
CHECKED = [name for name, table in TABLES.items() if "check" in table]


def test_rates_follow_from_the_chip() -> None:
    """TFLOPS = SM x GHz x FMA per clock and SM x 2 / 1000, dense, to 2 %.

    A published sparse figure, or fp16 accumulation on a GeForce card, is off by a factor of 2.
    Only what the formula does not explain goes unchecked.
    """
    for name in CHECKED:
        chip, profile = TABLES[name]["check"], ALL[name]
        fp32 = chip["sm"] * chip["fp32_ghz"] * chip["fp32_fma"] * 2 / 1000
        tensor = chip["sm"] * chip["tensor_ghz"] * chip["tensor_fma"] * 2 / 1000
        assert profile.fp32_tflops == pytest.approx(fp32, rel=0.02), name
        assert profile.fp16_tflops == pytest.approx(tensor, rel=0.02), name
    assert set(ALL) - set(CHECKED) == {"b200", "h20"}


def test_figures_are_of_the_right_size() -> None:
    for name, profile in ALL.items():
        generation = float(profile.compute_capability)
        assert 8 <= profile.memory_gib <= 192, name
        assert 200 <= profile.bandwidth_gb_per_s <= 8000, name
        assert 35 <= profile.tdp_w <= 1000, name
        assert 0 < profiles.usable_gib(profile) < profile.memory_gib, name
        if profile.title.startswith("NVIDIA"):  # what other vendors' numbers mean is their own
            assert (profile.bf16_tflops is not None) == (generation >= 8.0), name
            assert (profile.tf32_tflops is not None) == (generation >= 8.0), name
        assert all(each == each.lower() for each in profile.match), name
        assert len(profile.source) > 40, name
        if profile.bf16_tflops is not None:
            assert profile.bf16_tflops == profile.fp16_tflops, name
        if profile.tf32_tflops is not None and profile.fp16_tflops is not None:
            assert profile.tf32_tflops == pytest.approx(profile.fp16_tflops / 2, rel=0.03), name


# Names as nvidia-smi prints them, with the memory it shows.
REAL_NAMES = [
    ("NVIDIA GeForce RTX 3090", 24.0, "rtx-3090"),
    ("NVIDIA GeForce RTX 4060 Laptop GPU", 8.0, "rtx-4060-laptop"),
    ("NVIDIA H100 80GB HBM3", 79.6, "h100-sxm"),
    ("NVIDIA A100-SXM4-40GB", 40.0, "a100-40"),
    ("NVIDIA A100-SXM4-80GB", 80.0, "a100-80"),
    ("Tesla V100-SXM2-16GB", 16.0, "v100-sxm"),
    ("Tesla V100-SXM2-32GB", 32.0, "v100-sxm-32"),
    ("NVIDIA GeForce RTX 3060", 8.0, None),
    ("NVIDIA GeForce RTX 4060 Ti", 8.0, "rtx-4060-ti"),
    ("NVIDIA GeForce RTX 4060 Ti", 16.0, "rtx-4060-ti-16"),
    ("NVIDIA GeForce RTX 4090 D", 24.0, None),
    ("NVIDIA GeForce RTX 4090", 48.0, None),
    ("NVIDIA A100-SXM4-80GB", 9.8, None),
]


@pytest.mark.parametrize(("device", "memory_gib", "expected"), REAL_NAMES)
def test_a_card_is_known_by_its_whole_name_and_memory(device, memory_gib, expected) -> None:
    """SXM, PCIe and NVL are told apart; a rebuilt card, a slice or a namesake is no match."""
    found = profiles.match(device, memory_gib)
    assert (found.name if found else None) == expected


def test_no_two_profiles_claim_one_device_name_and_memory() -> None:
    claims = Counter((name, card.memory_gib) for card in ALL.values() for name in card.match)
    assert [claim for claim, times in claims.items() if times > 1] == []


def test_a_profile_is_found_as_people_write_it() -> None:
    for spelling in ("rtx-3090", "RTX 3090", "rtx3090", "NVIDIA GeForce RTX 3090"):
        assert profiles.by_name(spelling).name == "rtx-3090"
    for family, name in (("H100", "h100-sxm"), ("a100", "a100-80"), ("v100", "v100-sxm")):
        assert profiles.by_name(family).name == name


def test_an_unknown_name_lists_near_ones() -> None:
    for name, hint in (("rtx 3095", "Near names: .*rtx-3090"), ("???", "Known: a10, .*v100-sxm")):
        with pytest.raises(TargetError, match=hint):
            profiles.by_name(name)
