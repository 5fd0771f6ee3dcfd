"""Output is searched as it comes: what decides may stand anywhere in it."""

import os
import random
import re

import pytest

from advisor.model import OutputPattern
from advisor.runner.output import (
    LINE_BYTES,
    MOST_FIGURES,
    RATE_CHARS,
    Printed,
    Stream,
    Tally,
    Wanted,
    joined,
)

RATE = OutputPattern(name="rate", pattern=r"^[ \t]*throughput:[ \t]*(\S+)", matches="line")


def printed(output: bytes, *figures: OutputPattern, lines: str | None = None) -> Printed:
    """What is seen of a program that prints `output`."""
    wanted = Wanted(figures=figures, lines=lines and re.compile(lines), words=("lost",))
    readable, writable = os.pipe()
    stream = Stream(readable, "output", Tally(), wanted)
    with os.fdopen(writable, "wb") as pipe:
        pipe.write(output)
    stream.join()
    return stream.printed()


def figure(pattern: str, matches: str) -> OutputPattern:
    return OutputPattern(name="rate", pattern=pattern, matches=matches)


MUCH = b"".join(b"epoch %d: nothing of note\n" % n for n in range(60_000))
"""More than twenty times what is kept as text."""


@pytest.mark.parametrize(
    ("before", "after"), [(b"", MUCH), (MUCH, b""), (b"throughput: 1\n" + MUCH, MUCH)]
)
def test_a_rate_counts_wherever_it_stands(before, after) -> None:
    found = printed(before + b"throughput: 12.5\n" + after, RATE)
    assert found.figures == {"rate": ("12.5",)}


@pytest.mark.parametrize(
    ("output", "rate"),
    [
        (b"throughput: 1\nthroughput: 2\nx throughput: 3\n", "2"),
        (b"throughput: 1\nthroughput: 2", "2"),
        (b"throughput: 1\r\n", "1"),
        (b"throughput: 1\rthroughput: 2\r\n", "2"),
        (b"throughput: 1\rdone      \n", None),
        (b"\x1b[32mthroughput: 7\x1b[0m\n", "7"),
        (b"50%\r" * 100_000 + b"throughput: 4\n", "4"),
        (b"\xff\n throughput:\t3\n", "3"),
        (b"", None),
    ],
)
def test_the_last_line_with_a_rate_counts_as_a_terminal_shows_it(output, rate) -> None:
    """Without colours, and of a line that is redrawn its last state."""
    assert printed(output, RATE).figures.get("rate", (None,)) == (rate,)


def test_of_one_line_the_first_match_counts() -> None:
    own = figure(r"([0-9.]+) it/s", "line")
    assert printed(b"9 it/s\n10 it/s, at most 20 it/s\n", own).figures["rate"] == ("10",)


@pytest.mark.parametrize("length", [RATE_CHARS + 100, LINE_BYTES + 100, 5 * LINE_BYTES])
def test_a_line_too_long_is_counted_and_hides_no_other(length) -> None:
    """It is searched by its beginning, and the caller can say so."""
    found = printed(b"throughput: 5\n" + b"x" * length + b" throughput: 6\n", RATE)
    assert found.figures["rate"] == ("5",)
    assert found.cut_lines == 1


@pytest.mark.parametrize("pattern", [r"score (\d+)", r"item:\s+score (\d+)", r"(?m)^score (\d+)$"])
def test_blocks_of_output_are_searched_like_one_text(pattern) -> None:
    """Also a match that spans lines, wherever two blocks meet."""
    rng = random.Random(5)
    text = ""
    while len(text) < 700_000:
        text += rng.choice(["item:\n  score {}\n", "score {}\n", "x" * 900 + "\n"]).format(
            len(text)
        )
    whole = re.findall(pattern, text)
    assert printed(text.encode(), figure(pattern, "each")).figures["rate"] == tuple(whole)
    assert printed(text.encode(), figure(pattern, "last")).figures["rate"] == (whole[-1],)


def test_the_start_of_the_output_is_no_other_line() -> None:
    """`^` without (?m) means the first line alone."""
    text = b"a 1\n" + b"a 2\n" * 100_000
    assert printed(text, figure(r"^a (\d)", "each")).figures["rate"] == ("1",)


def test_figures_without_end_are_bounded() -> None:
    found = printed(b"1\n" * (MOST_FIGURES + 10), figure(r"\d", "each"))
    assert len(found.figures["rate"]) == MOST_FIGURES


def test_telling_lines_are_kept_from_the_whole_output() -> None:
    """With each printed traceback its exception and the line before it."""
    told = b"Exception in thread 1\nTraceback (most recent call last):\n  File x\nKeyError: 3\n"
    found = printed(b"lost 3\n" + told + MUCH + b"Lost 4\nlosing\n", lines=r"(?i)^lost \d")
    assert found.lines == (
        "lost 3", "Exception in thread 1", "Traceback (most recent call last):", "KeyError: 3",
        "Lost 4",
    )  # fmt: skip


def test_standard_error_counts_where_standard_output_has_no_figure() -> None:
    one, other = printed(b"throughput: 1\n", RATE), printed(b"throughput: 2\n", RATE)
    assert joined(one, other).figures == {"rate": ("1",)}
    assert joined(Printed(), other).figures == {"rate": ("2",)}


@pytest.mark.parametrize(
    ("told", "units"), [("3", 3.0), ("0", 0.0), ("1,000", 1000.0), ("5e-324", 1.0), ("-1", 1.0),
                        ("1e999", 1.0), ("nan", 1.0), ("x", 1.0)],
)  # fmt: skip
def test_a_line_tells_a_sane_number_of_units_or_counts_as_one(told, units) -> None:
    tally = Tally(r"row (\S+)")
    tally.add(f"row {told}".encode())
    assert tally.marks[-1].value == units
