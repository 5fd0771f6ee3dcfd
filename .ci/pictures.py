"""Makes the pictures of the docs from kept records, with Debian's `chromium`.

python3 .ci/pictures.py [NAME ...]

Nobody draws by hand, so a picture shows what the program of today makes of its record.
"""

from __future__ import annotations

import io
import itertools
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from PIL import Image, ImageChops
from rich.console import Console

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from advisor.executor.comparison import Comparison  # noqa: E402
from advisor.executor.requests import (  # noqa: E402
    AFTER,
    BEFORE,
    ABTest,
    TrialRequest,
    TrialResult,
    Variant,
)  # fmt: skip
from advisor.executor.rounds import Round  # noqa: E402
from advisor.gate import report as gate_report  # noqa: E402
from advisor.model import MeasurePlan  # noqa: E402
from advisor.objective import THROUGHPUT  # noqa: E402
from advisor.report import progress, writing  # noqa: E402
from advisor.report.schema import TrialEntry  # noqa: E402
from tests.runs import a_run  # noqa: E402
from tests.support import browser  # noqa: E402

DOCS, RESULTS = ROOT / "docs", ROOT / "benchmarks" / "results"
BUDGET_S = 300.0
"""Seconds that the README's first command may take: `budget` of gpu-advisor.toml."""
TALLEST = 2600
"""Rows of a window that holds the page before it is cut."""
COMMENT = """<!doctype html><meta charset=utf-8><style>
body {{ margin: 0; padding: 16px; background: #fff; color: #1f2328;
  font: 14px/1.5 -apple-system, "Noto Sans", Helvetica, Arial, sans-serif; }}
article {{ border: 1px solid #d1d9e0; border-radius: 6px; padding: 16px; max-width: 780px; }}
table {{ border-collapse: collapse; margin: 0 0 16px; }}
th, td {{ border: 1px solid #d1d9e0; padding: 6px 13px; }}
code {{ background: #818b981f; border-radius: 6px; padding: .2em .4em; font-size: 85%; }}
h2, h3 {{ margin: 0 0 16px; border-bottom: 1px solid #d1d9e0b3; padding-bottom: .3em; }}
</style><article>{body}</article>"""
"""A comment in the colours and measures of a pull request's page."""


def report_page() -> str:
    """The page of the README's first command."""
    return writing.page(writing.load(RESULTS / "dem_completion-cpu2.json"))


def live_view_page() -> str:
    """The live view of the README's first command before its proof's last round, as a terminal's.

    It is fed with the trials of the record until then.
    """
    report = writing.load(RESULTS / "dem_completion-cpu2.json")
    proof = report.comparisons[0]
    first = next(
        at for at, each in enumerate(report.trials) if each.purpose == proof.purpose
    )
    last = first + 2 * (len(proof.rounds) - 1)
    done = [recorded(each) for each in report.trials[:last]]
    view = progress.Progress(unit=report.unit, budget_s=BUDGET_S, stream=io.StringIO())
    for stage, attempts in itertools.groupby(done, key=lambda each: each.request.purpose):
        view.stage(stage)
        for attempt in attempts:
            view.trial_started(int(attempt.id), attempt.request.label)
            view.trial_done(attempt)
    turns = {each.request.label: each for each in done}
    rounds = [
        Round(
            number=each.round,
            runs={
                BEFORE: at_rate(turns[proof.before], each.before),
                AFTER: at_rate(turns[proof.after], each.after),
            },
        )
        for each in proof.rounds[:-1]
    ]
    sides = (turns[proof.before].request, turns[proof.after].request)
    test = ABTest(purpose="confirm", requests=sides, rounds=len(proof.rounds))
    gain = Comparison(ab_test=test, rounds=tuple(rounds), remaining_s=0.0).interval(
        THROUGHPUT
    )
    view.round_done(len(rounds), test.rounds, proof.after, gain)
    running = report.trials[last]
    view.trial_started(int(running.id), running.label)
    view._began -= sum(each.result.wall_s for each in done)  # noqa: SLF001
    console = Console(file=io.StringIO(), record=True, width=100, force_terminal=True)
    console.print(view)
    svg = console.export_svg(title="gpu-advisor", unique_id="live-view")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return f"<!doctype html><meta charset=utf-8><style>body {{ margin: 0 }}</style>{svg}"


def recorded(entry: TrialEntry) -> TrialResult:
    """A finished trial, as a report keeps it."""
    request = TrialRequest(
        variant=Variant(), purpose=entry.purpose, plan=MeasurePlan(), title=entry.label
    )
    run = a_run(
        units_per_s=entry.units_per_s,
        wait_share=entry.wait_share,
        peak_mem_gib=entry.peak_mem_gib,
        wall_s=entry.wall_s,
    )
    return TrialResult(id=entry.id, request=request, result=run, remaining_s=0.0)


def at_rate(attempt: TrialResult, units_per_s: float) -> TrialResult:
    """The same variant in another round."""
    return replace(attempt, result=replace(attempt.result, units_per_s=units_per_s))


def comment_page() -> str:
    """The gate's comment on a slower training."""
    from markdown_it import MarkdownIt

    record = gate_report.read(RESULTS / "gate-comment.json")
    text = re.sub(r"<!--.*?-->\n", "", gate_report.comment(record))
    render = MarkdownIt("commonmark", {"html": True}).enable("table").render
    return COMMENT.format(body=render(text))


PICTURES = {
    "report-page": (report_page, 1280, 2400),
    "report-phone": (report_page, 390, 1100),
    "gate-comment": (comment_page, 820, TALLEST),
    "live-view": (live_view_page, 1000, 600),
}
"""By name: the page, the width of its window, and the rows that are kept at most."""


def picture(page: str, width: int, rows: int, place: Path) -> None:
    """Photograph a page from its top; white rows below its end are cut off.

    A window of Chromium is never narrower than 500 pixels, so the page stands in a frame.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "page.html").write_text(page, encoding="utf-8")
        (folder / "frame.html").write_text(
            "<!doctype html><body style='margin:0;background:#fff'><iframe src=page.html "
            f"style='border:0' width={width} height={TALLEST}></iframe>"
        )
        shot = folder / "shot.png"
        size = f"--window-size={max(width, 500)},{TALLEST}"
        words = (*browser.words(folder), size, "--hide-scrollbars", f"--screenshot={shot}")
        address = (folder / "frame.html").as_uri()
        subprocess.run([*words, address], check=True, capture_output=True, timeout=90)
        whole = Image.open(shot).convert("RGB").crop((0, 0, width, rows))
        white = Image.new("RGB", whole.size, whole.getpixel((0, rows - 1)))
        *_, bottom = ImageChops.difference(whole, white).getbbox() or (0, 0, width, rows)
        cut = whole.crop((0, 0, width, min(rows, bottom + 16)))
        cut.quantize(128).save(place, optimize=True)


if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        make, width, rows = PICTURES[name]
        picture(make(), width, rows, DOCS / f"{name}.png")
        print(f"docs/{name}.png")
