"""Catalogue of value families and whole-name rules; arithmetic of noise schedules."""

import functools
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from advisor.knobs.registry import REGISTRY
from advisor.knobs.tree import Leaf, number_of
from advisor.model import JsonScalar, Phase

PHASES: tuple[Phase, ...] = ("train", "eval", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    types: frozenset[str]
    words: frozenset[str] = frozenset()
    low: float = -math.inf
    high: float = math.inf

    def holds(self, value: JsonScalar | tuple[JsonScalar, ...]) -> bool:
        if _squeezed(value) in self.words:
            return True
        return bool(self.types & types_of(value)) and within(self.low, value, self.high)


def within(low: float, value: JsonScalar | tuple[JsonScalar, ...], high: float) -> bool:
    """True if every number of `value` lies in the range."""
    numbers = map(number_of, value if isinstance(value, tuple) else (value,))
    return all(number is None or low <= number <= high for number in numbers)


def _squeezed(value: object) -> str:
    """`torch.bfloat16`, `BFLOAT_16` and `bfloat16` as one word."""
    text = str(value).strip().lower()
    return re.sub(r"\A[a-z.]+\.(?=[a-z])|[_-]", "", text)


def types_of(value: JsonScalar | tuple[JsonScalar, ...]) -> frozenset[str]:
    """Type words of catalogue.toml that fit `value`."""
    if isinstance(value, tuple):
        whole = all(type(item) is int for item in value)
        return frozenset({"list", "ints"} if whole else {"list"})
    if isinstance(value, str):
        return _text_types(value.strip())
    tests = {
        "null": value is None,
        "bool": isinstance(value, bool),
        "int": type(value) is int,
        "zero-one": type(value) is int and value in {0, 1},
        "float": isinstance(value, float),
        "whole": isinstance(value, float) and value.is_integer(),
    }
    return frozenset(kind for kind, holds in tests.items() if holds)


def _text_types(text: str) -> frozenset[str]:
    kinds = {"text"} if text else set()
    tests = {
        "auto": r"(?i)auto",
        "missing": r"\?\?\?",
        "null": r"(?i)none|null|~",
        "digits": r"\d+",
        "flag-name": r"-{1,2}[A-Za-z].*",
        "choice-text": r"(choice|range|interval|uniform|loguniform)\(.*\)",
        "device-list-text": r"[(\[]?\s*\d+\s*(,\s*\d*)+[)\]]?|[(\[]\s*\d+\s*[)\]]",
        "ddim-text": r"ddim\d+|\d+(,\d+)+",
        "precision-policy-text": r"[pco]\w*=\w+(,[pco]\w*=\w+)*",
        "bool": r"(?i)true|false|yes|no|on|off",
    }
    kinds |= {kind for kind, test in tests.items() if re.fullmatch(test, text)}
    number = number_of(text)
    if number is not None and number.is_integer():
        kinds.add("whole-text")
    return frozenset(kinds)


AROUND = ("under", "parent", "sibling", "document")
"""Conditions on names around a leaf; `not-` negates one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """Kind of a leaf, or with `trap` a look-alike."""

    kind: str = ""
    trap: str | None = None
    unit: str | None = None
    scope: str | None = None
    why: str = "its name and value"
    """The evidence, with weights if words have them: "`batch size` +6, `sw` -1"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRule:
    names: re.Pattern[str]
    family: Family
    meaning: Meaning
    format: str | None = None
    phases: frozenset[str] = frozenset()
    conditions: tuple[tuple[str, bool, re.Pattern[str]], ...] = ()
    """Place, whether one of the names there must match, and the pattern."""

    def fits(
        self, leaf: Leaf, around: Mapping[str, frozenset[str]], of: str, phase: str
    ) -> bool:
        """True if `leaf`, in a document of format `of`, meets all conditions."""
        return (
            self.format in (None, of)
            and (not self.phases or phase in self.phases)
            and all(
                wanted == any(pattern.fullmatch(name) for name in around[at])
                for at, wanted, pattern in self.conditions
            )
            and self.family.holds(leaf.value)
        )


@functools.cache
def table_of(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files("advisor.knobs").joinpath(name).read_text("utf-8"))


def catalogue() -> dict[str, Any]:
    return table_of("catalogue.toml")


@functools.cache
def pattern_of(table: str, key: str = "names") -> re.Pattern[str]:
    """Expressions of one list as one pattern, in any case."""
    return _union(catalogue()[table][key], re.IGNORECASE)


@functools.cache
def phase_words() -> dict[str, Phase]:
    return {word: phase for phase in PHASES for word in catalogue()["phase-words"][phase]}


@functools.cache
def families() -> dict[str, Family]:
    rows = catalogue()["family"]
    return {name: _family(row, rows) for name, row in rows.items()}


@functools.cache
def _rules() -> tuple[NameRule, ...]:
    plain = [{"kind": k.kind, "names": list(k.names)} for k in REGISTRY.values() if k.names]
    return tuple(map(_rule, (*catalogue()["rule"], *plain)))


@functools.lru_cache(maxsize=8192)
def rules_for(name: str) -> tuple[NameRule, ...]:
    return tuple(rule for rule in _rules() if rule.names.fullmatch(name))


def _family(row: Mapping[str, Any], rows: Mapping[str, Any]) -> Family:
    words = row.get("words", rows.get(row.get("words-of", ""), {}).get("words", []))
    return Family(
        types=frozenset(row["types"]),
        words=frozenset(map(_squeezed, words)),
        low=row.get("min", -math.inf),
        high=row.get("max", math.inf),
    )


def _rule(row: Mapping[str, Any]) -> NameRule:
    row = dict(row)
    family = row.pop("value", REGISTRY[row["kind"]].family if "kind" in row else "any")
    wanted = [(at, True, _union(row.pop(at))) for at in AROUND if at in row]
    banned = [
        (at, False, _union(row.pop(f"not-{at}"))) for at in AROUND if f"not-{at}" in row
    ]
    return NameRule(
        names=_union(row.pop("names")),
        family=families()[family],
        conditions=(*wanted, *banned),
        phases=frozenset(row.pop("for", ())),
        format=row.pop("format", None),
        meaning=Meaning(**row),
    )


def _union(patterns: list[str], flags: int = 0) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), flags)


LARGEST_BETA = 0.999
"""Largest noise rate of a step; beyond, a step keeps nothing of the past.

Nichol and Dhariwal (2021) clip at it, and the field does since: https://arxiv.org/abs/2102.09672"""


def log_signal(start: float, end: float, steps: int, power: int) -> float:
    """Log-signal log prod(1 - beta_t); beta ** (1 / power) rises in a line.

    Raises ValueError for a noise rate beta outside [0, 1).
    """
    first, last = start ** (1 / power), end ** (1 / power)
    rise = (last - first) / max(1, steps - 1)
    betas = [(first + rise * i) ** power for i in range(steps)]
    if not all(0 <= beta < 1 for beta in betas):
        msg = f"a schedule from {start} to {end} has a noise rate outside [0, 1)"
        raise ValueError(msg)
    return math.fsum(math.log1p(-beta) for beta in betas)


def rescaled_schedule(
    start: float, end: float, steps: int, new_steps: int, power: int = 1
) -> tuple[float, float]:
    """Ends that keep the terminal signal. Raises ValueError if none do."""
    wanted = log_signal(start, end, steps, power)
    if wanted == 0:
        msg = f"a schedule from {start} to {end} adds no noise"
        raise ValueError(msg)
    low, high = 0.0, LARGEST_BETA / max(start, end)
    reached = log_signal(start * high, end * high, new_steps, power)
    if reached > wanted:
        msg = (
            f"{steps} steps from {start:g} to {end:g} leave a signal of {math.exp(wanted):.3g}. "
            f"{new_steps} leave {math.exp(reached):.3g} even at a last noise rate of {LARGEST_BETA}"
        )
        raise ValueError(msg)
    for _ in range(200):
        middle = (low + high) / 2
        if log_signal(start * middle, end * middle, new_steps, power) > wanted:
            low = middle
        else:
            high = middle
    # its error is below 0.1 %
    return float(f"{start * low:.6g}"), float(f"{end * low:.6g}")
