"""Precisions to try, in the spelling a file already uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from advisor import knobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.knobs import Findings


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("precision: 32\n", {"float16": 16, "bfloat16": "bf16"}),
        ("precision: 16\n", {"bfloat16": "bf16"}),
        ("precision: 16-mixed\n", {"bfloat16": "bf16-mixed"}),
        ("precision: 32-true\n", {"float16": "16-mixed", "bfloat16": "bf16-mixed"}),
        ("precision: fp32\n", {"float16": "fp16", "bfloat16": "bf16"}),
        ("mixed_precision: 'no'\n", {"float16": "fp16", "bfloat16": "bf16"}),
        ("dtype: float32\n", {"float16": "float16", "bfloat16": "bfloat16"}),
        ("dtype: torch.float32\n", {"float16": "torch.float16", "bfloat16": "torch.bfloat16"}),
        ("precision: amp_fp16\n", {"bfloat16": "amp_bf16"}),
        ("amp: false\n", {"bfloat16": True, "float16": True}),
        ("train: {autocast: false}\n", {"bfloat16": True, "float16": True}),
        ("use_half: false\n", {"float16": True}),
        ("bf16: {enabled: false}\n", {"bfloat16": True}),
        ("fp16: true\n", {}),
        ("mixed_precision: fp8\n", {}),
        ("fp8: false\n", {}),
        ("fp16: {enabled: false}\n", {"float16": True}),
    ],
)
def test_only_words_of_the_same_family_and_no_more_bits(
    text: str, wanted: dict[str, object], find: Callable[..., Findings]
) -> None:
    (knob,) = find(text).knobs
    assert knobs.precision_choices(knob) == wanted


def test_bfloat16_is_tried_first(find: Callable[..., Findings]) -> None:
    """It needs no loss scaling; a card without it leaves float16."""
    for text in ("precision: 32\n", "dtype: float32\n", "precision: fp32\n", "amp: false\n"):
        (knob,) = find(text).knobs
        assert list(knobs.precision_choices(knob)) == ["bfloat16", "float16"]
