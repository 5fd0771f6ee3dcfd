"""Catalogue of value families and whole-name rules."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

from advisor.knobs.registry import REGISTRY
from advisor.knobs.tree import Leaf, number_of, words_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advisor.model import JsonScalar, Phase

Shape = Literal["line", "root-line"]
"""Rise of a schedule's noise rates; `root-line` is linear in their square roots."""

PHASES: tuple[Phase, ...] = ("train", "eval", "test")

_RATE = re.compile(r"[-+]?(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A set of values that belong together."""

    types: frozenset[str]
    words: frozenset[str] = frozenset()
    parts: frozenset[str] = frozenset()
    """Words one of which is enough in a text: `cudnn_flash_te` has `flash`."""
    low: float | None = None
    high: float | None = None

    def holds(self, value: JsonScalar | tuple[JsonScalar, ...]) -> bool:
        """True if `value`, or each element, belongs here."""
        if _squeezed(value) in self.words:
            return True
        if isinstance(value, str) and self.parts & set(re.split(r"[^a-z0-9]+", value.lower())):
            return True
        if not self.types & types_of(value):
            return False
        numbers = value if isinstance(value, tuple) else (value,)
        if "int-tuple-text" in self.types & types_of(value):
            numbers = tuple(map(int, re.findall(r"\d+", str(value))))
        return all(self._in_range(number) for number in numbers)

    def _in_range(self, value: JsonScalar) -> bool:
        number = number_of(value)
        if number is None:
            return True
        return (self.low is None or number >= self.low) and (
            self.high is None or number <= self.high
        )


def _squeezed(value: object) -> str:
    """Normalize the spelling of a word.

    `torch.bfloat16`, `BFLOAT_16` and `bfloat16` are one.
    """
    text = str(value).strip().lower()
    return re.sub(r"\A[a-z.]+\.(?=[a-z])|[_-]", "", text)


def types_of(value: JsonScalar | tuple[JsonScalar, ...]) -> frozenset[str]:
    """The type words of catalogue.toml that fit `value`."""
    if isinstance(value, tuple):
        kinds = {"list"}
        if all(isinstance(v, int) and not isinstance(v, bool) for v in value):
            kinds |= {"ints", "floats"}
            if len(value) == 2:
                kinds.add("pair")
            sides = sorted(map(int, value))[1:]  # type: ignore[arg-type]
            if len(value) == 3 and {value[0], value[2]} & {1, 3, 4} and sides[0] >= 8:
                kinds.add("sides-and-channels")
        elif all(
            "float" in types_of(v) or "int" in types_of(v) or "numeric-text" in types_of(v)
            for v in value
        ):
            kinds.add("floats")
        return frozenset(kinds)
    if value is None:
        return frozenset({"null"})
    if isinstance(value, bool):
        return frozenset({"bool"})
    if isinstance(value, int):
        return frozenset({"int", "zero-one"} if value in {0, 1} else {"int"})
    if isinstance(value, float):
        return frozenset({"float", "whole"} if value.is_integer() else {"float"})
    return _text_types(value.strip())


def _text_types(text: str) -> frozenset[str]:
    kinds = {"text"} if text else {"empty"}
    tests = {
        "auto": r"(?i)auto",
        "missing": r"\?\?\?",
        "null": r"(?i)none|null|~",
        "digits": r"\d+",
        "numeric-text": _RATE.pattern,
        "duration": r"\d+(ba|ep|tok|sp|s|m|h|d|dur)",
        "flag-name": r"-{1,2}[A-Za-z].*",
        "choice-text": r"(choice|range|interval|uniform|loguniform)\(.*\)",
        "int-tuple-text": r"[(\[]?\s*\d+\s*([,x]\s*\d+\s*)*,?\s*[)\]]?",
        "device-list-text": r"[(\[]?\s*\d+\s*(,\s*\d*)+[)\]]?|[(\[]\s*\d+\s*[)\]]",
        "ddim-text": r"ddim\d+|\d+(,\d+)+",
        "precision-policy-text": r"[pco]\w*=\w+(,[pco]\w*=\w+)*",
        "bool": r"(?i)true|false|yes|no|on|off",
    }
    kinds |= {kind for kind, test in tests.items() if re.fullmatch(test, text)}
    if "numeric-text" in kinds and float(text).is_integer():
        kinds.add("whole-text")
    return frozenset(kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row of the catalogue: conditions and their meaning."""

    names: re.Pattern[str]
    family: Family
    kind: str | None
    trap: str | None
    phase: Phase | None
    unit: str | None
    scope: str | None
    under: frozenset[str]
    not_under: frozenset[str]
    called: frozenset[str]
    not_called: frozenset[str]
    parent: frozenset[str]
    not_parent: frozenset[str]
    sibling: re.Pattern[str] | None
    not_sibling: re.Pattern[str] | None
    document: re.Pattern[str] | None
    not_document: re.Pattern[str] | None
    format: str | None
    phases: frozenset[str]
    of_model: bool
    or_only: str | None
    of_stage: bool

    def fits(
        self, leaf: Leaf, parent: str, names_in_document: frozenset[str], format_: str, phase: str
    ) -> bool:
        """True if `leaf` meets every other condition."""
        return (
            self.format in (None, format_)
            and (not self.phases or phase in self.phases)
            and (not self.under or bool(self.under & leaf.words))
            and not self.not_under & leaf.words
            and (not self.called or bool(self.called & leaf.words_called))
            and not self.not_called & leaf.words_called
            and (not self.parent or bool(self.parent & words_of(parent)))
            and not self.not_parent & words_of(parent)
            and (self.sibling is None or _any(self.sibling, leaf.siblings))
            and (self.not_sibling is None or not _any(self.not_sibling, leaf.siblings))
            and (self.document is None or _any(self.document, names_in_document))
            and (self.not_document is None or not _any(self.not_document, names_in_document))
            and self.family.holds(leaf.value)
        )


def _any(pattern: re.Pattern[str], names: frozenset[str]) -> bool:
    return any(pattern.fullmatch(name) for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """Key whose value makes settings beside it dead."""

    key: str
    values: frozenset[str]
    instead: re.Pattern[str]
    names: re.Pattern[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Everything catalogue.toml says."""

    families: Mapping[str, Family]
    rules: tuple[Rule, ...]
    wrappers: frozenset[str]
    phase_words: Mapping[str, Phase]
    sample_words: frozenset[str]
    phase_switches: re.Pattern[str]
    phase_flags: Mapping[Phase, re.Pattern[str]]
    own_phase_words: frozenset[str]
    document_phases: Mapping[Phase, re.Pattern[str]]
    comments: Mapping[str, re.Pattern[str]]
    unit_switch_keys: frozenset[str]
    unit_switch: Mapping[str, str]
    global_batch: re.Pattern[str]
    not_global_batch: re.Pattern[str]
    switches: tuple[Switch, ...]
    single_valued: re.Pattern[str]
    reference_names: re.Pattern[str]
    reference_suffixes: tuple[str, ...]
    output_names: re.Pattern[str]
    output_not_under: frozenset[str]
    schedule_ends: tuple[tuple[str, str], ...]
    schedule_names: frozenset[str]
    schedule_shapes: Mapping[str, Shape | None]
    respacing_copies: frozenset[str]
    fixed_targets: tuple[str, ...]
    fixed_trained: frozenset[str]
    self_scaling: re.Pattern[str]
    multiples: frozenset[str]
    precision_rows: tuple[Mapping[str, JsonScalar], ...]

    @functools.lru_cache(maxsize=8192)  # noqa: B019  (there is one catalogue in a process)
    def rules_for(self, name: str) -> tuple[Rule, ...]:
        """Rules for this canonical name, in order."""
        return tuple(rule for rule in self.rules if rule.names.fullmatch(name))

    def __hash__(self) -> int:
        return id(self)


@functools.cache
def catalogue() -> Catalogue:
    """The catalogue shipped with the package."""
    text = resources.files("advisor.knobs").joinpath("catalogue.toml").read_text("utf-8")
    table = tomllib.loads(text)
    families = {name: _family(row, table["family"]) for name, row in table["family"].items()}
    return Catalogue(
        families=families,
        rules=tuple(_rule(row, families) for row in (*table["rule"], *_plain_names())),
        wrappers=frozenset(table["wrappers"]),
        phase_words={w: p for p in PHASES for w in table["phase-words"][p]},
        sample_words=frozenset(table["phase-words"]["sample"]),
        phase_switches=_union(table["phase-switch"]["names"]),
        phase_flags={p: _union(table["phase-flag"][p]) for p in PHASES if p in table["phase-flag"]},
        own_phase_words=frozenset(table["own-phase-words"]["words"]),
        document_phases={
            p: _union(table["phase-of-document"][p])
            for p in PHASES
            if p in table["phase-of-document"]
        },
        comments={
            name: re.compile("|".join(patterns), re.IGNORECASE)
            for name, patterns in table["comments"].items()
        },
        unit_switch_keys=frozenset(table["unit-switch"]["keys"]),
        unit_switch=table["unit-switch"]["units"],
        global_batch=_union(table["global-batch"]["document"]),
        not_global_batch=_union(table["global-batch"]["not-document"]),
        switches=tuple(
            Switch(
                key=row["key"],
                values=frozenset(row["values"]),
                instead=_union(row["instead"]),
                names=_union(row["names"]),
            )
            for row in table["switch"]
        ),
        single_valued=_union(table["single-valued"]["names"]),
        reference_names=_union(table["references"]["names"]),
        reference_suffixes=tuple(table["references"]["suffixes"]),
        output_names=_union(table["outputs"]["names"]),
        output_not_under=frozenset(table["outputs"]["not-under"]),
        schedule_ends=tuple((start, end) for start, end in table["schedule"]["ends"]),
        schedule_names=frozenset(table["schedule"]["names"]),
        schedule_shapes=_shapes(table["schedule"]),
        respacing_copies=frozenset(table["respacing"]["copies"]),
        fixed_targets=tuple(table["fixed-steps"]["targets"]),
        fixed_trained=frozenset(table["fixed-steps"]["trained"]),
        self_scaling=_union(table["self-scaling"]["names"]),
        multiples=frozenset(table["multiples"]["names"]),
        precision_rows=tuple(table["precision-row"]),
    )


def _shapes(row: Mapping[str, Any]) -> dict[str, Shape | None]:
    return {
        **dict.fromkeys(row["line"], "line"),
        **dict.fromkeys(row["root-line"], "root-line"),
        **dict.fromkeys(row["without-ends"]),
    }


def _family(row: Mapping[str, Any], rows: Mapping[str, Any]) -> Family:
    words = row.get("words", rows.get(row.get("words-of", ""), {}).get("words", []))
    return Family(
        types=frozenset(row["types"]),
        words=frozenset(map(_squeezed, words)),
        parts=frozenset(row.get("parts", ())),
        low=row.get("min"),
        high=row.get("max"),
    )


def _plain_names() -> list[dict[str, Any]]:
    """Rules for the names that the registry itself holds."""
    return [
        {"kind": each.kind, "names": list(each.names)} for each in REGISTRY.values() if each.names
    ]


def _rule(row: dict[str, Any], families: Mapping[str, Family]) -> Rule:
    row = dict(row)
    kind = row.pop("kind", None)
    family = row.pop("value", REGISTRY[kind].family if kind else "any")
    rule = Rule(
        names=_union(row.pop("names")),
        family=families[family],
        kind=kind,
        trap=row.pop("trap", None),
        phase=row.pop("phase", None),
        unit=row.pop("unit", None),
        scope=row.pop("scope", None),
        under=frozenset(row.pop("under", ())),
        not_under=frozenset(row.pop("not-under", ())),
        called=frozenset(row.pop("called", ())),
        not_called=frozenset(row.pop("not-called", ())),
        parent=frozenset(row.pop("parent", ())),
        not_parent=frozenset(row.pop("not-parent", ())),
        sibling=_union(row.pop("sibling", ())),
        not_sibling=_union(row.pop("not-sibling", ())),
        document=_union(row.pop("document", ())),
        not_document=_union(row.pop("not-document", ())),
        format=row.pop("format", None),
        phases=frozenset(row.pop("for", ())),
        of_model=row.pop("of-model", False),
        or_only=row.pop("or-only", None),
        of_stage=row.pop("of-stage", False),
    )
    assert not row, f"unknown condition in catalogue.toml: {sorted(row)}"
    assert (rule.kind is None) != (rule.trap is None), f"a rule is a kind or a trap: {rule.names}"
    return rule


def _union(patterns: Any) -> Any:
    return re.compile("|".join(f"(?:{p})" for p in patterns)) if patterns else None
