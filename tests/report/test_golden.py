"""Wording by golden reports; rules that every report keeps."""

import re
import shlex
from collections.abc import Iterator

import pytest
from markdown_it import MarkdownIt

from advisor import numbers
from advisor.__main__ import build_parser
from advisor.model import Decision
from advisor.report import view
from advisor.report.schema import Report, Side, SuggestionEntry
from tests.report import examples, golden

PARSER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
MOST_LINES = 80


def memo(text: str) -> list[str]:
    """Lines above the details."""
    return text.partition("\n## Details")[0].splitlines()


@examples.every_report
def test_the_wording_is_that_of_the_golden_report(name) -> None:
    """`python -m tests.report.golden` renders them again."""
    assert golden.markdown(name) == (golden.FOLDER / f"{name}.md").read_text(encoding="utf-8")


def crowded(report: Report) -> Report:
    """`report` with far more of everything than a page holds."""
    decisions = [
        Decision(
            path=f"model.layers[{at}].size", kind="other", knob_class="quality", document="c.json",
            outcome="listed", old=at, new=at, reason="Never tuned by itself.",
        )
        for at in range(70)
    ]  # fmt: skip
    gain = report.gain
    suggestion = SuggestionEntry(title="t", detail="d", gain=gain, patch="--- a\n+++ b\n")
    lines = [f"+    key{at}: {at}" for at in range(60)]
    return report.model_copy(
        update={
            "decisions": [*report.decisions, *decisions],
            "changes": [*report.changes] * 8,
            "suggestions": [suggestion] * 12,
            "notes": [f"Note {at}." for at in range(20)],
            "load_note": "Others were at work.",
            "isolation_note": "Not isolated.",
            "baseline_note": "Baseline and comparison disagree.",
            "tuned_command": "python run.py --batch-size 8",
            "diff": "\n".join(["--- a", "+++ b", "@@ -1 +1 @@", *lines]),
        }
    )


@examples.every_report
def test_the_memo_fits_eighty_lines_and_every_figure_in_it_was_measured(name) -> None:
    report = golden.report(name)
    for shown in (view.render(report), view.render(crowded(report))):
        assert len(memo(shown)) <= MOST_LINES
        assert numbers.NOT_MEASURED not in shown


@pytest.mark.parametrize("name", [n for n in golden.NAMES if golden.report(n).changes])
def test_the_ratio_of_the_headline_is_that_of_the_table(name) -> None:
    """The rates divide to the printed gain."""
    report = golden.report(name)
    before, after = report.before.units_per_s, report.after.units_per_s
    assert after / before == pytest.approx(report.gain.ratio, rel=0.005)
    lines = memo(view.render(report))
    row = next(line for line in lines if line.startswith(f"| {numbers.plural(report.unit)}/s"))
    *_, ratio = re.findall(r"(?:more than )?[\d.]+x", lines[0])
    assert ratio in row


@pytest.mark.parametrize("util_pct", [20.0, 74.0, 99.0])
def test_a_gpu_leads_with_the_figure_of_nvidia_smi_and_contradicts_it_nowhere(util_pct) -> None:
    """Compute that events show is a least figure."""
    shares = {"launch": 0.7, "compute": 0.2, "other": 0.1}
    side = Side(
        units_per_s=10.0, gpu_util_pct=util_pct, shares=shares, batch=64, gpu_mem_used_gib=11.4
    )
    lines = memo(view.render(golden.report("gpu", before=side, after=side)))
    (lead,) = (line for line in lines if line.startswith("GPU utilisation"))
    assert lead.startswith(f"GPU utilisation {util_pct:.0f} % to {util_pct:.0f} % (nvidia-smi")
    assert ("not 100 % mainly because of launching small kernels;" in lead) is (util_pct < 95)
    assert "the program held 11.4 GiB to 11.4 GiB of 24.0 GiB" in lead
    assert any(line.startswith("| compute, at least | 20.0 ms (20 %)") for line in lines)
    assert not any("idle" in line for line in lines)


def test_memory_of_the_host_is_not_called_the_cards() -> None:
    """A program that computes on CPUs has a peak, too, beside a card that it leaves alone."""
    side = Side(units_per_s=10.0, gpu_util_pct=0.0, batch=64, peak_mem_gib=11.4)
    lines = memo(view.render(golden.report("gpu", before=side, after=side)))
    (lead,) = (line for line in lines if line.startswith("GPU utilisation"))
    assert lead.startswith("GPU utilisation 0 % to 0 %")
    assert "GiB to" not in lead


def commands(text: str) -> Iterator[list[str]]:
    """Words of every command of ours in `text`."""
    fences = re.findall(r"^gpu-advisor .*$", text, re.MULTILINE)
    spans = re.findall(r"`(gpu-advisor [^`]+)`", text)
    for line in (*fences, *spans):
        yield shlex.split(line)[1:]


@examples.every_report
def test_the_command_line_takes_every_printed_command(name) -> None:
    for subcommand, *words in commands(golden.markdown(name)):
        own = words[: words.index("--")] if "--" in words else words
        if own or subcommand in {"doctor", "profile"}:
            build_parser(subcommand).parse_args(own)


@examples.every_report
def test_strings_of_the_user_stay_text(name) -> None:
    """No heading, link, image, HTML or code block beyond those of the sections."""

    def parts(report: Report) -> dict[str, list[str]]:
        tokens = PARSER.parse(view.render(report))
        inline = [child for token in tokens for child in token.children or ()]
        return {
            "headings": [t.tag for t in tokens if t.type == "heading_open"],
            "html": [t.content for t in tokens if t.type == "html_block"]
            + [child.content for child in inline if child.type == "html_inline"],
            "links": [child.type for child in inline if child.type == "link_open"],
            "images": [str(child.attrs["src"]) for child in inline if child.type == "image"],
            "blocks": [t.info for t in tokens if t.type in ("fence", "code_block")],
        }

    report = golden.report(name)
    calm, found = parts(report), parts(examples.hostile(report))
    assert found["headings"] == calm["headings"]
    rest = [[info for info in each["blocks"] if info != "diff"] for each in (calm, found)]
    assert rest[0] == rest[1]
    assert found["links"] == []
    assert all(re.fullmatch(r"[\w.%]+-figures/\w+\.svg", image) for image in found["images"])
    tags = r"</?details>|<summary>[^<]*</summary>|\s"
    assert not any(re.sub(tags, "", html) for html in found["html"])


def test_settings_of_another_phase_are_left_out() -> None:
    report = examples.improved()
    (other,) = [entry for entry in report.decisions if not entry.in_phase]
    assert f"`{other.path}`" not in view.render(report)
