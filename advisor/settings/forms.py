"""Values of gpu-advisor.toml: durations, shares, commands, expressions."""

from __future__ import annotations

import math
import re
import shlex
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, StringConstraints

from advisor.objective import parse_constraint

_NUMBER = r"(\d+(?:\.\d+)?)"
_DURATION = re.compile(
    rf"\s*(?:{_NUMBER}\s*h)?\s*(?:{_NUMBER}\s*m)?\s*(?:{_NUMBER}\s*s)?\s*", re.IGNORECASE
)


def parse_duration_s(text: str | float) -> float:
    """Seconds of `90s`, `1.5m` or `1h5m`. Raises ValueError."""
    spelled = re.sub(rf"\A\s*{_NUMBER}\s*\Z", r"\1s", str(text))  # bare numbers are seconds
    parts = None if isinstance(text, bool) else _DURATION.fullmatch(spelled)
    hours, minutes, seconds = (float(part or 0) for part in parts.groups()) if parts else (0, 0, 0)
    total = 3600 * hours + 60 * minutes + seconds
    if not 0 < total < math.inf:
        msg = f"{text!r} is no duration above zero; write 90s, 10m, 3m30s or 1h"
        raise ValueError(msg)
    return total


def parse_share(text: str | float) -> float:
    """Parse `5%` or `0.05`. Raises ValueError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%)?\s*", str(text))
    if not match:
        msg = f"{text!r} is no share; write 5% or 0.05"
        raise ValueError(msg)
    return float(match[1]) / (100 if match[2] else 1)


def needs_shell(command: str) -> bool:
    """Return True for a command with shell operators."""
    return any(mark in command for mark in ("&&", "||", ";", "|", "`", "$(", "<", ">"))


def _parsed_command(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError as problem:
        if needs_shell(text):
            return text
        msg = f"is no command ({problem}); close the quote, or put a backslash before it"
        raise ValueError(msg) from problem
    if not words:
        msg = "names no program"
        raise ValueError(msg)
    return text


def parsed_regex(text: str) -> str:
    """Check a regular expression. Raises ValueError."""
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as problem:
        msg = f"is no regular expression: {problem}"
        raise ValueError(msg) from problem
    return text


def _parsed_number_regex(text: str) -> str:
    if not re.compile(parsed_regex(text)).groups:
        msg = "has no group; put the number in brackets, such as ([0-9.]+)"
        raise ValueError(msg)
    return text


def _parsed_tolerance(text: str | float) -> str:
    value = str(text).strip()
    try:
        slack = parse_share(value) if value.endswith("%") else float(value)
    except ValueError:
        slack = math.nan
    if not 0 <= slack < math.inf:
        msg = "is no tolerance; write 2% (relative) or 0.01 (absolute)"
        raise ValueError(msg)
    return value


def _parsed_bounds(bounds: tuple[str, ...]) -> tuple[str, ...]:
    for bound in bounds:
        parse_constraint(bound)
    return bounds


Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
Command = Annotated[Text, AfterValidator(_parsed_command)]
Regex = Annotated[str, AfterValidator(parsed_regex)]
NumberRegex = Annotated[str, AfterValidator(_parsed_number_regex)]
Tolerance = Annotated[str, BeforeValidator(_parsed_tolerance, json_schema_input_type=float | str)]
ObjectiveName = Literal["throughput", "latency", "energy"]
Bounds = Annotated[tuple[Text, ...], AfterValidator(_parsed_bounds)]
Variables = dict[Annotated[str, StringConstraints(pattern=r"^[^=\x00]+$")], Text]
Duration = Annotated[float, BeforeValidator(parse_duration_s, json_schema_input_type=float | str)]
Share = Annotated[float, BeforeValidator(parse_share, json_schema_input_type=float | str)]
