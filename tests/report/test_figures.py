"""Figures: the measured points, readable on light and dark pages, always the same bytes."""

import functools
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from advisor.report import figures, writing
from tests.report import examples, golden

SVG = "{http://www.w3.org/2000/svg}"
ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def drawn(name: str) -> dict[str, bytes]:
    """The figures, drawn once."""
    return figures.draw(golden.report(name))


def luminance(colour: str) -> float:
    """Luminance of a colour, as WCAG 2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", ["improved", "gpu"])
def test_figures_are_valid_svg_with_colours_for_white_and_dark(name) -> None:
    for figure, (panels, points) in {"batch": (2, 10), "rounds": (1, 8)}.items():
        root = ET.fromstring(drawn(name)[figure])
        assert root.tag == f"{SVG}svg"
        assert len(list(root.iter(f"{SVG}circle"))) >= points
        assert len(list(root.iter(f"{SVG}g"))) == panels
        for colour in set(re.findall(r"#[0-9a-f]{6}", drawn(name)[figure].decode())):
            assert contrast(colour, "#ffffff") >= 4.2, colour
            assert contrast(colour, "#0d1117") >= 4.2, colour


def test_text_of_the_report_is_no_markup() -> None:
    unit = "<script>\x1b[31m&"
    root = ET.fromstring(figures.draw(examples.improved(unit=unit))["batch"])
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "throughput, <script>&s/s" in texts


@pytest.mark.parametrize(
    ("highest", "shown"),
    [(0.83, [0, 0.2, 0.4, 0.6, 0.8]), (1150.0, [0, 500, 1000]), (6.0, [0, 2, 4, 6])],
)
def test_an_axis_has_a_few_round_numbers(highest, shown) -> None:
    assert figures.ticks(highest) == pytest.approx(shown)


def test_the_batch_curve_compares_only_runs_that_differ_in_the_batch() -> None:
    curve = figures.batch_curve(examples.improved())
    assert curve.beside == "workers 1"
    rates = {1: [0.583], 2: [0.640], 4: [0.701], 8: [0.722], 16: [0.715]}
    assert curve.by_batch("units_per_s") == rates
    assert curve.by_batch("peak_mem_gib")[16] == [0.66]
    assert figures.batch_curve(examples.partial()) is None


def test_to_write_a_report_imports_nothing_heavy(tmp_path) -> None:
    code = (
        "import sys; from pathlib import Path;"
        "from tests.report import examples; from advisor.report import progress, writing;"
        "writing.write(examples.improved(), Path(sys.argv[1]));"
        "sys.exit(any(name in sys.modules for name in ('rich', 'numpy')))"
    )
    report_md = tmp_path / "report.md"
    subprocess.run([sys.executable, "-c", code, str(report_md)], cwd=ROOT, check=True)


def test_figures_lie_beside_the_report(tmp_path) -> None:
    writing.write(examples.improved(), tmp_path / "tuned here.md")
    text = (tmp_path / "tuned here.md").read_text()
    targets = re.findall(r"!\[[^\n]*\]\((\S+)\)", text)
    assert targets
    for target in targets:
        assert (tmp_path / target.replace("%20", " ")).is_file()
