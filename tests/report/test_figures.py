"""Figures: the measured points, readable on light and dark pages, always the same bytes."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from advisor.report import figures, writing
from tests.report import examples, golden

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="figures need the extra `plots`"
)

SVG = "{http://www.w3.org/2000/svg}"
ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def drawn(name: str) -> bytes:
    """The figure, drawn once."""
    svg = figures.draw(golden.report(name))
    assert svg is not None
    return svg


def luminance(colour: str) -> float:
    """Luminance of a colour, as WCAG 2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", ["improved", "gpu"])
def test_figures_are_valid_svg_with_colours_for_white_and_dark(name: str) -> None:
    root = ET.fromstring(drawn(name))
    assert root.tag == f"{SVG}svg"
    assert len(list(root.iter(f"{SVG}path"))) > 10
    for colour in set(re.findall(r"#[0-9a-f]{6}", drawn(name).decode())) - {"#ffffff"}:
        assert contrast(colour, "#ffffff") >= 4.2, colour
        assert contrast(colour, "#0d1117") >= 4.2, colour


def test_the_same_report_gives_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("xtick.major.size: 20\nfigure.frameon: False\n")
    code = (
        "import sys; from pathlib import Path; from tests.report import examples;"
        "from advisor.report import figures;"
        "Path(sys.argv[1]).write_bytes(figures.draw(examples.improved()))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MATPLOTLIBRC": str(tmp_path)}
    there = tmp_path / "there.svg"
    subprocess.run([sys.executable, "-c", code, str(there)], cwd=ROOT, env=environment, check=True)
    assert there.read_bytes() == drawn("improved")


@pytest.mark.parametrize("unit", ["$\\frac{1}{0$", "\u753b\u50cf"])
def test_a_unit_is_neither_a_formula_nor_a_warning(unit: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert figures.draw(examples.improved(unit=unit))


def test_the_batch_curve_compares_only_runs_that_differ_in_the_batch() -> None:
    curve = figures.batch_curve(examples.improved())
    assert curve is not None
    assert curve.beside == "workers 1"
    rates = {1: [0.583], 2: [0.640], 4: [0.701], 8: [0.722], 16: [0.715]}
    assert curve.by_batch("units_per_s") == rates
    assert curve.by_batch("peak_mem_gib")[16] == [0.66]
    assert figures.batch_curve(examples.partial()) is None


def test_a_report_is_written_without_matplotlib(tmp_path: Path) -> None:
    """It has no figure then; nothing else that is heavy is imported either."""
    code = (
        "import sys; sys.modules['matplotlib'] = None; from pathlib import Path;"
        "from tests.report import examples; from advisor.report import progress, writing;"
        "writing.write(examples.improved(), Path(sys.argv[1]));"
        "sys.exit(any(name in sys.modules for name in ('rich', 'numpy')))"
    )
    report_md = tmp_path / "report.md"
    subprocess.run([sys.executable, "-c", code, str(report_md)], cwd=ROOT, check=True)
    assert "![" not in report_md.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "report.md"]


def test_figures_lie_beside_the_report(tmp_path: Path) -> None:
    writing.write(examples.improved(), tmp_path / "tuned here.md")
    text = (tmp_path / "tuned here.md").read_text()
    targets = re.findall(r"!\[[^\n]*\]\((\S+)\)", text)
    assert targets
    for target in targets:
        assert (tmp_path / target.replace("%20", " ")).is_file()
