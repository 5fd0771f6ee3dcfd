"""Which precisions a knob could ask for, in the spelling its file already uses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from advisor.knobs.catalogue import catalogue
from advisor.knobs.tree import parts_of

if TYPE_CHECKING:
    from advisor.model import JsonScalar, Knob

_WIDTH_BITS = {"float32": 32, "float16": 16, "bfloat16": 16}


def precision_choices(knob: Knob) -> dict[str, JsonScalar]:
    """Torch dtype to the value that asks for it, for no more bits than the current value.

    Only words of the spelling family already in use: `16-mixed` gives `bf16-mixed`, `fp32` gives
    `fp16` and `bf16`, a flag that is off can be put on. Empty where the family is not known.
    """
    if isinstance(knob.value, bool):
        dtype = _dtype_of_flag(knob)
        return {} if knob.value or dtype is None else {dtype: True}
    row, current = row_of(knob.value)
    return {
        dtype: _cased(word, knob.value)
        for dtype, word in row.items()
        if dtype != current and _WIDTH_BITS[dtype] <= _WIDTH_BITS[current]
    }


def _dtype_of_flag(knob: Knob) -> str | None:
    """What a flag puts on; None for eight bits, which no dtype that is tried here stands for."""
    name = "_".join(str(part) for part in parts_of(knob.path)[-2:]).lower()
    if re.search(r"(?:fp|float|int)_?8(?!\d)", name):
        return None
    return "bfloat16" if "bf16" in name or "bfloat16" in name else "float16"


def row_of(value: object) -> tuple[dict[str, JsonScalar], str]:
    """The spelling family of `value`, and the dtype it asks for; the first row that has it."""
    for row in catalogue().precision_rows:
        for dtype, word in row.items():
            if type(word) is type(value) and str(word).lower() == str(value).lower():
                return dict(row), dtype
    return {}, "float32"


def _cased(word: JsonScalar, like: object) -> JsonScalar:
    return word.upper() if isinstance(word, str) and str(like).isupper() else word
