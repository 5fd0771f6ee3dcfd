"""Which values are worth trying for a knob, in the spelling its file already uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.knobs.catalogue import catalogue
from advisor.knobs.tree import canonical, parts_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advisor.model import JsonScalar, Knob

_FLAG_DTYPE = (("bf16", "bfloat16"), ("bfloat16", "bfloat16"))


def precision_choices(knob: Knob) -> Mapping[str, JsonScalar]:
    """Torch dtype of the compute to the value that asks for it, the current one included.

    Only the spelling family already in use: `16-mixed` gives `bf16-mixed`, a flag its other
    state. Empty where the family is not known.
    """
    if isinstance(knob.value, bool):
        name = knob.path.lower()
        dtype = next((dtype for word, dtype in _FLAG_DTYPE if word in name), "float16")
        return {"float32": False, dtype: True}
    rows = catalogue().precision_rows
    word = str(knob.value).lower()
    row = next((row for row in rows if word in [str(v).lower() for v in row.values()]), None)
    if row is None:
        return {}
    if isinstance(knob.value, str):
        return {dtype: _cased(str(value), knob.value) for dtype, value in row.items()}
    return {dtype: value for dtype, value in row.items() if isinstance(value, int)}


def choices(knob: Knob, cpus: int) -> tuple[JsonScalar, ...]:
    """Values worth trying besides the current one, nearest to it first.

    `cpus`: CPUs the program may use. Numbers keep their type; kinds without a known range and
    knobs that are not editable give none.
    """
    value = knob.value
    if not knob.editable or isinstance(value, tuple):
        return ()
    if knob.kind == "precision":
        return tuple(v for v in precision_choices(knob).values() if v != value)
    if isinstance(value, bool):
        return (not value,)
    number = _number(value)
    if number is None:
        return ()
    if knob.kind == "batch_size":
        wanted = [number * 2**step for step in range(1, 7)]
    elif knob.kind == "num_workers":
        wanted = sorted({0, 1, 2, 4, 8, 16, 32, cpus}, key=lambda n: abs(n - number))
        wanted = [n for n in wanted if n <= cpus]
    elif knob.kind == "prefetch_factor":
        wanted = [1, 2, 4, 8]
    elif knob.kind == "timesteps" and "speedup" not in canonical(str(parts_of(knob.path)[-1])):
        wanted = [number // share for share in (2, 4, 8, 16) if number // share >= 1]
    else:
        wanted = []
    return tuple(_typed(n, value) for n in wanted if n != number)


def _number(value: JsonScalar) -> int | None:
    try:
        number = float(str(value))
    except ValueError:
        return None
    return int(number) if number.is_integer() and number >= 0 else None


def _typed(number: int, like: JsonScalar) -> JsonScalar:
    """`number` as the file keeps it: text where it is quoted, a float where it is one."""
    return (
        str(number)
        if isinstance(like, str)
        else float(number)
        if isinstance(like, float)
        else number
    )


def _cased(word: str, like: str) -> str:
    return word.upper() if like.isupper() else word
