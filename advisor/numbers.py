"""Numbers for readers; None and what is not finite read `not measured`, never 0."""

import math

NOT_MEASURED = "not measured"
WORTH_SAYING = 0.01
"""A smaller part of the time or a batch is left out."""


def number(value: float | None, digits: int = 3) -> str:
    """Significant digits, whole numbers in full: `1.48`, `0.0123`, `1,612`."""
    if value is None or not math.isfinite(value):
        return NOT_MEASURED
    if isinstance(value, int) or value == 0:
        return f"{value:,.0f}"
    exponent = int(f"{value:.{digits - 1}e}".split("e")[1])  # after rounding: 9.999 is 10.0
    decimals = max(0, digits - 1 - exponent)
    if decimals > digits + 3:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{decimals}f}"


def ratio(value: float | None) -> str:
    """`2.91x`."""
    if value is None or not math.isfinite(value):
        return NOT_MEASURED
    return f"{factor(value)}x"


def factor(value: float) -> str:
    """`2.91`, `31.2`."""
    return f"{value:.2f}" if value < 10 else number(value)


def interval(value: float | None, low: float | None, high: float | None) -> str:
    """`1.48 (1.45 to 1.51)`, or the estimate alone without bounds."""
    if None in (value, low, high):
        return number(value)
    return f"{number(value)} ({number(low)} to {number(high)})"


def measure(value: float | None, digits: int = 4) -> str:
    """Format a quality measure with four digits."""
    text = number(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def count(value: float | None) -> str:
    """Format a count: `8`, or `7.5` for a mean."""
    if value is None or not math.isfinite(value):
        return NOT_MEASURED
    return f"{value:,.0f}" if abs(value) >= 1e6 else f"{value:,.6g}"  # no 1.04858e+06


def whole_minutes(seconds: float) -> str:
    """`6m`: a budget as typed, rounded up."""
    return f"{int(-(-seconds // 60))}m"


def duration(seconds: float | None, digits: int = 2) -> str:
    """Format a duration: `724 us`, `6.2 s`, `3 h 40 min`."""
    if seconds is None or not math.isfinite(seconds):
        return NOT_MEASURED
    for small, factor in (("us", 1e6), ("ms", 1e3)):
        if 0 < seconds * factor < 999.5:
            return f"{number(seconds * factor)} {small}"
    if seconds < 59.5:
        return f"{number(float(seconds), digits)} s"
    for large, small, large_s, small_s, upto in (
        ("min", "s", 60, 1, 3600),
        ("h", "min", 3600, 60, 48 * 3600),
        ("d", "h", 86400, 3600, math.inf),
    ):
        whole = round(seconds / small_s) * small_s
        if whole < upto:
            rest = round(whole % large_s / small_s)
            head = f"{whole // large_s:,} {large}"
            return f"{head} {rest} {small}" if rest else head
    raise AssertionError(seconds)


def gib(value: float | None) -> str:
    """Format GiB: `22.9 MiB`, `12.3 GiB`."""
    if value is None or not math.isfinite(value):
        return NOT_MEASURED
    return f"{value:,.1f} GiB" if value >= 1 else f"{number(value * 1024)} MiB"


def percent(share: float | None) -> str:
    """Format a share of 1: `<0.1 %`, `87 %`."""
    if share is None or not math.isfinite(share):
        return NOT_MEASURED
    value = share * 100
    if 0 < abs(value) < 0.05:
        return "<0.1 %"
    return f"{value:.1f} %" if 0 < abs(value) < 9.95 else f"{value:.0f} %"


def plural(unit: str) -> str:
    """`tile` to `tiles`, `batch` to `batches`, `row of a forward` to `rows of a forward`."""
    noun, of, whole = unit.partition(" of ")
    if of:
        return f"{plural(noun)}{of}{whole}"
    if unit.endswith(("s", "x", "z", "ch", "sh")):
        return f"{unit}es"
    if unit.endswith("y") and unit[-2:-1] not in "aeiou":
        return f"{unit[:-1]}ies"
    return f"{unit}s"


def many(number: int, noun: str) -> str:
    """`1 worker`, `2 workers`, `1,200 processes`."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def one(unit: str) -> str:
    """`a tile`, `an image`, `a unit`, `an utterance`: by the sound, as `u` has two."""
    open_u = unit.startswith(("un", "up", "ut")) and not unit.startswith("uni")
    vowel = open_u or unit.startswith(("a", "e", "i", "o"))
    return f"{'an' if vowel else 'a'} {unit}"
