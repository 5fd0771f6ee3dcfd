"""Figures show what was measured, on light pages and dark ones, the same bytes every time."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from advisor.report import curves, figures, view, writing
from tests.report import examples

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure as Canvas

    from advisor.report.model import Report

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="figures need the extra `plots`"
)

SVG = "{http://www.w3.org/2000/svg}"
ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def drawn(make: Callable[[], Report]) -> dict[str, bytes]:
    """SVG by file name, drawn once."""
    found = figures.draw(make())
    assert found
    return found


def luminance(colour: str) -> float:
    """Relative luminance of `#rrggbb`, as WCAG 2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@examples.every_example
def test_what_is_planned_is_drawn_as_valid_svg(make: Any) -> None:
    assert set(drawn(make)) == {figure.file for figure in figures.plan(make())}
    assert set(drawn(make)) <= set(figures.FILES)
    for svg in drawn(make).values():
        root = ET.fromstring(svg)
        assert root.tag == f"{SVG}svg"
        assert len(list(root.iter(f"{SVG}path"))) > 10


def test_the_same_report_gives_the_same_bytes_whatever_the_matplotlibrc(tmp_path: Path) -> None:
    """In another process, as in this one."""
    (tmp_path / "matplotlibrc").write_text("xtick.major.size: 20\nfigure.frameon: False\n")
    code = (
        "import sys; from pathlib import Path; from tests.report import examples;"
        "from advisor.report import figures;"
        "folder = Path(sys.argv[1]); folder.mkdir();"
        "[(folder / n).write_bytes(s) for n, s in figures.draw(examples.improved()).items()]"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MATPLOTLIBRC": str(tmp_path)}
    folder = tmp_path / "there"
    command = [sys.executable, "-c", code, str(folder)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    there = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert len(there) == 4
    assert there == drawn(examples.improved)


@examples.every_example
def test_every_colour_reads_on_white_and_on_githubs_dark(make: Any) -> None:
    for each in drawn(make).values():
        svg = each.decode()
        colours = set(re.findall(r"#[0-9a-f]{6}", svg)) - {"#ffffff"}  # white only inside bars
        assert colours
        for colour in colours:
            assert contrast(colour, "#ffffff") >= 4.2, colour
            assert contrast(colour, "#0d1117") >= 4.2, colour
        background = ET.fromstring(svg).find(f".//{SVG}g[@id='patch_1']/{SVG}path")
        assert background is not None
        assert "fill: none" in background.attrib["style"]


def test_a_label_is_never_read_as_a_formula() -> None:
    report = examples.improved(unit="$\\frac{1}{0$")
    assert figures.draw(report)


def test_the_batch_curve_sets_only_like_runs_side_by_side() -> None:
    """Only the batch differs: runs with other workers or fewer timesteps are left out."""
    curve = curves.batch_curve(examples.improved())
    assert curve is not None
    assert curve.means == {1: 0.583, 2: 0.640, 4: 0.701, 8: 0.722, 16: 0.715}
    assert curve.memory_gib[16] == 0.66
    assert curve.failed == {32: "host-oom"}
    assert curve.chosen == 8
    assert curve.beside == "num_workers=1"


def test_a_batch_curve_at_the_configs_own_workers_says_so() -> None:
    """Where more was changed than the batch, a reader would take them for the new workers."""
    found = examples.improved()
    trials = [
        trial.model_copy(update={"label": trial.label.removeprefix("num_workers=1 ")})
        for trial in found.trials
        if trial.label != "num_workers=1"
    ]
    curve = curves.batch_curve(found.model_copy(update={"trials": trials}))
    assert curve is not None
    assert curve.beside == "all else as it was"
    assert "all else as it was" in curve.alt


def test_there_is_no_curve_through_one_point() -> None:
    assert curves.batch_curve(examples.partial()) is None
    assert curves.quality_curves(examples.partial()) == []
    assert curves.time_split(examples.partial()) is None


def test_the_time_of_a_unit_adds_up_to_one_over_the_rate() -> None:
    report = examples.improved()
    split = curves.time_split(report)
    assert split is not None
    assert sum(split.bars["before"].values()) == pytest.approx(1 / report.before.units_per_s)
    assert sum(split.bars["after"].values()) == pytest.approx(1 / report.after.units_per_s)


def test_the_best_so_far_takes_no_run_of_lesser_quality() -> None:
    """250 timesteps ran at 2.85 tiles/s but were out of tolerance, and would flatten the rest."""
    series = curves.trial_series(examples.improved())
    assert series is not None
    assert max(rate for rate in series.rates if rate) == pytest.approx(1.48 * 1.025)
    assert series.best_so_far[-1] == pytest.approx(1.48 * 1.025)
    assert series.best_so_far[:3] == [0.507, 0.514, 0.514]
    assert series.failed == {12: "host-oom"}
    purposes, rates = [*series.purposes, "effects"], [*series.rates, 9.9]
    shown = dataclasses.replace(series, purposes=purposes, rates=rates)
    assert shown.best_so_far[-1] == series.best_so_far[-1]


def test_quality_is_drawn_against_the_steps_that_were_tried() -> None:
    rmse, slope = curves.quality_curves(examples.improved())
    assert rmse.points == {1000: 0.5124, 500: 0.5181, 250: 0.5273}
    assert (rmse.chosen, rmse.limit) == (500, 0.5226)
    assert [rmse.within(value) for value in rmse.points.values()] == [True, True, False]
    assert slope.measure == "slope"


def test_without_matplotlib_the_report_says_how_to_get_figures(tmp_path: Path) -> None:
    """Everything else is there, and nothing has tried to import it on the way."""
    code = (
        "import sys; sys.modules['matplotlib'] = None;"
        "from pathlib import Path; from tests.report import examples;"
        "from advisor.report import writing;"
        "writing.write(examples.improved(), Path(sys.argv[1]))"
    )
    report_md = tmp_path / "report.md"
    subprocess.run([sys.executable, "-c", code, str(report_md)], cwd=ROOT, check=True)
    text = report_md.read_text()
    assert text.count('pip install "gpu-advisor[plots]"') == 1
    assert "![" not in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "report.md"]


def test_rendering_alone_does_not_import_matplotlib() -> None:
    code = (
        "import sys; from tests.report import examples;"
        "from advisor.report import rendering, progress;"
        "rendering.render(examples.improved(), 'f');"
        "sys.exit(any(name in sys.modules for name in ('matplotlib', 'rich', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_figures_lie_beside_the_report(tmp_path: Path) -> None:
    writing.write(examples.partial(), tmp_path / "tuned here.md")
    text = (tmp_path / "tuned here.md").read_text()
    targets = re.findall(r"!\[[^\n]*\]\((\S+)\)", text)
    assert targets
    for target in targets:
        assert (tmp_path / target.replace("%20", " ")).is_file()


def overlaps(report: Report, *names: str) -> list[tuple[str, str]]:
    """Texts of its figures, or of those with one of these `names`, that lie on one another."""
    planned = [each for each in figures.plan(report) if each.file in (names or figures.FILES)]
    assert planned
    return [pair for each in planned for pair in crossed(each.paint, each.height)]


def crossed(paint: Callable[[Canvas], None], height: float) -> list[tuple[str, str]]:
    """The same of one figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(7.2, height), layout="constrained")
    paint(canvas)
    renderer = FigureCanvasAgg(canvas).get_renderer()
    canvas.draw(renderer)
    texts = [text for axes in canvas.axes for text in axes.texts if text.get_text()]
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts]
    return [
        (one, other)
        for at, (one, box) in enumerate(boxes)
        for other, its in boxes[at + 1 :]
        if box.overlaps(its)
    ]


def outside(paint: Callable[[Canvas], None], height: float) -> list[float]:
    """Values that are drawn beyond the ends of their axis."""
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(7.2, height), layout="constrained")
    paint(canvas)
    return [
        float(y)
        for axes in canvas.axes
        for line in axes.lines
        for y in (np.atleast_1d(line.get_ydata()) if line.get_transform() == axes.transData else ())
        if not axes.get_ylim()[0] <= y <= axes.get_ylim()[1]
    ]


def test_a_lucky_run_is_seen_too() -> None:
    """It lies far above the mean of its batch, and above the best so far."""
    calm = examples.improved()
    (lucky,) = [t for t in calm.trials if t.label == "num_workers=1 batch_size=16"]
    more = lucky.model_copy(update={"id": "x1", "units_per_s": 1.2})
    report = examples.improved(trials=[*calm.trials, more])
    drawn = {each.file: outside(each.paint, each.height) for each in figures.plan(report)}
    assert not any(drawn.values()), drawn


@pytest.mark.parametrize("chosen", [1, 32])
def test_of_two_batches_either_may_be_the_best(chosen: int) -> None:
    """The band of noise is named on the side that the chosen one leaves free."""
    whole = curves.batch_curve(examples.improved())
    assert whole is not None
    rates = {1: [0.4, 0.36], 32: [0.12, 0.1]} if chosen == 1 else {1: [0.12, 0.1], 32: [0.4, 0.36]}
    two = dataclasses.replace(
        whole,
        rates=rates,
        memory_gib={1: 0.36, 32: 0.42},
        chosen=chosen,
        failed={},
        noise_band=0.12,
    )
    assert crossed(lambda canvas: figures._paint_batch(canvas, two), 3.4) == []


THIN = {"data_wait": 0.15, "compute": 0.66, "validation": 0.025, "saving": 0.02, "other": 0.145}


def test_no_label_lies_on_another() -> None:
    assert overlaps(examples.improved()) == []


@pytest.mark.parametrize("shares", [{}, THIN, dict(reversed(THIN.items()))])
def test_thin_parts_of_the_time_are_named_above_and_below(shares: dict[str, float]) -> None:
    """Of two runs, and of one alone."""
    calm = examples.improved()
    sides = {
        name: getattr(calm, name).model_copy(update={"shares": shares} if shares else {})
        for name in ("before", "after")
    }
    alone = sides["before"]
    assert overlaps(examples.improved(**sides), "time.svg") == []
    single = examples.improved(before=alone, after=alone, changes=[])
    assert overlaps(single, "time.svg") == []


def test_each_part_of_the_time_has_a_colour_of_its_own() -> None:
    """A thin part is named once at most; in the other bar its colour alone tells it."""
    colours = [figures.PARTS[told] for told in view.SHARES.values()]
    assert len(set(colours)) == len(colours)
    for colour in colours:
        assert min(contrast(colour, "#ffffff"), contrast(colour, "#0d1117")) >= 4.2, colour


def test_a_name_that_the_font_lacks_warns_nobody() -> None:
    """A box stands for each such letter; the table and the figure's text hold the name."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert figures.draw(examples.unchanged(unit="\u753b\u50cf"))
