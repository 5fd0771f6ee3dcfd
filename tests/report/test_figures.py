"""Figures: the measured points, readable on light and dark pages, always the same bytes."""

import functools
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from advisor.report import figures, writing
from advisor.report.bottleneck import PARTS
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
@pytest.mark.parametrize("figure", figures.NAMES)
def test_figures_are_svg_with_a_title_and_colours_for_white_and_dark(name, figure) -> None:
    svg = drawn(name)[figure]
    root = ET.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    assert root.find(f"{SVG}title").text
    for colour in set(re.findall(r"#[0-9a-f]{6}", svg.decode())):
        assert contrast(colour, "#ffffff") >= 4.2, colour
        assert contrast(colour, "#0d1117") >= 4.2, colour


def texts(svg: bytes) -> list[str]:
    """What a reader of the figure reads."""
    return ["".join(text.itertext()).strip() for text in ET.fromstring(svg).iter(f"{SVG}text")]


def test_a_figure_of_batches_says_where_in_what_and_at_which_sizes() -> None:
    shown = texts(drawn("gpu")["batch"])
    assert "NVIDIA GeForce RTX 3090, workers 8" in shown
    assert "samples/s" in shown
    for size in ("16", "32", "64", "128", "256"):
        assert size in shown
    for entry in ("each trial", "after", "limit", "gpu-oom"):
        assert entry in shown


def test_the_ring_is_around_what_was_written_though_no_curve_leads_there() -> None:
    """Steps that were changed beside the batch are not on the curve of the batch."""
    report = golden.report("quality-gated")
    curve = figures.batch_curve(report)
    assert max(map(max, curve.by_batch("units_per_s").values())) < report.after.units_per_s
    assert "after" in texts(figures.draw(report)["batch"])


def test_the_parts_of_the_time_are_named_and_have_a_unit_that_a_person_reads() -> None:
    shown = texts(drawn("gpu")["time"])
    assert "milliseconds a sample" in shown
    assert {"compute", "waiting for data", "before", "after"} <= set(shown)


def test_parts_that_lie_beside_each_other_differ_in_grey() -> None:
    assert len(set(figures.BARS.values())) == len(figures.BARS)
    assert figures.BARS.keys() == PARTS.keys()


def test_the_same_report_gives_the_same_bytes() -> None:
    assert figures.draw_rounds(golden.report("gpu")) == drawn("gpu")["rounds"]


def test_text_of_the_report_is_no_markup_and_no_formula() -> None:
    unit = "<script>\x1b[31m&$x$"
    shown = texts(figures.draw(examples.improved(unit=unit))["batch"])
    assert "<script>&$x$s/s" in shown


def test_the_batch_curve_compares_only_runs_that_differ_in_the_batch() -> None:
    curve = figures.batch_curve(examples.improved())
    assert curve.beside == "workers 1"
    rates = {1: [0.583], 2: [0.640], 4: [0.701], 8: [0.722], 16: [0.715]}
    assert curve.by_batch("units_per_s") == rates
    assert curve.by_batch("peak_mem_gib")[16] == [0.66]
    assert figures.batch_curve(examples.partial()) is None


def test_to_write_a_report_without_a_figure_imports_nothing_heavy(tmp_path) -> None:
    code = (
        "import sys; from pathlib import Path;"
        "from tests.report import examples; from advisor.report import progress, writing;"
        "writing.write(examples.partial(), Path(sys.argv[1]));"
        "sys.exit(any(name in sys.modules for name in ('rich', 'numpy', 'matplotlib')))"
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
