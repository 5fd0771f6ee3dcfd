"""Spelling of values and of paths such as `a.b[0].c`."""

import json
import math
import re
from decimal import Decimal
from typing import TypeGuard

from advisor.errors import EditRefusedError
from advisor.model import JsonScalar

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_/+\-]+")


def member(parent: str, key: str | int) -> str:
    """Path of a key or an index below `parent`."""
    if isinstance(key, int):
        return f"{parent}[{key}]"
    if _PLAIN_KEY.fullmatch(key):
        return f"{parent}.{key}" if parent else key
    return f"{parent}[{json.dumps(key, ensure_ascii=False)}]"


NUMBER = re.compile(r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_BOOLEANS = (("true", "false"), ("yes", "no"), ("on", "off"))


def in_family(value: JsonScalar, old: JsonScalar, text: str) -> JsonScalar:
    """`value` like `old`, spelled `text`: quoted, float and whole stay so.

    A program may parse what stands in quotes itself, or check for the type: a rate that was 1.0
    must not become 1, and a quoted count stays a quoted count.
    """
    if isinstance(old, str) and text[:1] in ("'", '"'):
        if isinstance(value, bool) and old.lower() in _BOOLEANS[0]:
            return spell_boolean(value, old)
        if is_number(value) and NUMBER.fullmatch(old):
            return spell_number(value)
    elif (
        is_number(value) and is_number(old) and math.isfinite(value) and abs(value) < 2**53
    ):
        if isinstance(old, float):
            return float(value)
        return int(value) if value == int(value) else value
    return value


def is_same(one: JsonScalar, other: JsonScalar) -> bool:
    """True for equal values of one type family."""
    if is_number(one) and is_number(other):
        return one == other or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and one == other


def spell_number(value: float) -> str:
    """`0.0001`, never `1e-4`, which YAML 1.1 reads as text. Raises EditRefusedError."""
    if not math.isfinite(value):
        msg = f"{value} is no number to write into a config."
        raise EditRefusedError(msg)
    text = format(Decimal(repr(value)), "f")
    return text if isinstance(value, int) or "." in text else f"{text}.0"


def spell_boolean(value: bool, old: str, plain: str = "true") -> str:
    """Spell a boolean like `old`, or like `plain` if that is none."""
    family = [pair for pair in _BOOLEANS if old.lower() in pair]
    like, (true, false) = (old, family[0]) if family else (plain, _BOOLEANS[0])
    word = true if value else false
    if like.isupper():
        return word.upper()
    return word.title() if like[:1].isupper() else word


def double_quoted(value: str) -> str:
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in quoted)


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
