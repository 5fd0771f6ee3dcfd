"""The HTML page: the same as report.md, from nothing but itself, with nothing in it that acts."""

from __future__ import annotations

import base64
import html
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from advisor.errors import OutputRefusedError
from advisor.report import page, rendering, writing
from tests.report import examples
from tests.report.hostile import hostile
from tests.report.reading import PARSER

if TYPE_CHECKING:
    from pathlib import Path

    from tests.warm import Server

SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><path d="M0 0"/></svg>'
DRAWN = {f"{name}.svg": SVG for name in ("batch", "time", "quality", "trials")}
VOID = {"meta", "img", "br", "wbr", "hr"}


class Tree(HTMLParser):
    """Tags with their attributes, and the text that a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if not {"style", "nav", "title", "footer"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return "".join("".join(self.words).split())


@examples.every_example
def test_the_page_says_what_the_markdown_says(make: Any) -> None:
    """Every word and every figure of report.md, in its order, and no other."""
    report = make()
    told = PARSER.render(rendering.render(report, page.FIGURES))
    calm = re.sub(r"<[^>]*>", "", told)
    shown = page.page(report, DRAWN)
    assert Tree(shown).text == "".join(html.unescape(calm).split())


@examples.every_example
def test_the_page_is_whole_and_needs_no_other_file(make: Any) -> None:
    """Tags close, places within it exist, and every picture is in it with its text."""
    tree = Tree(page.page(make(), DRAWN))
    assert not tree.open
    ids = [attrs["id"] for _, attrs in tree.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for tag, attrs in tree.tags:
        assert tag not in {"script", "link", "iframe", "object", "form", "svg"}
        assert not any(name.startswith("on") for name in attrs)
        if "href" in attrs:
            assert (attrs["href"] or "").removeprefix("#") in ids
        if "src" in attrs:
            kind, _, data = (attrs["src"] or "").partition(",")
            assert kind == "data:image/svg+xml;base64"
            assert base64.b64decode(data) == SVG
            assert attrs["alt"]


@examples.every_example
def test_tables_are_told_to_those_who_hear_them(make: Any) -> None:
    """Each table has a name, each head says what it heads, and no head is a row of nothing."""
    text = page.page(make(), DRAWN)
    tree = Tree(text)
    assert all(attrs.get("scope") in {"col", "row"} for tag, attrs in tree.tags if tag == "th")
    assert all(attrs.get("aria-label") for tag, attrs in tree.tags if attrs.get("role"))
    assert sum(tag == "table" for tag, _ in tree.tags) == text.count('role="region"')
    assert not re.search(r"<thead>\s*<tr>(\s*<th[^>]*></th>\s*)+</tr>", text)


@examples.every_example
def test_strings_of_the_users_stay_text(make: Any) -> None:
    """No tag and no attribute that the same report without them has not, and no other section."""
    report = make()
    trials = [trial.model_copy(update={"detail": f"{trial.detail}x\ny"}) for trial in report.trials]
    report = report.model_copy(update={"trials": trials})
    calm, bad = (Tree(page.page(each, DRAWN)) for each in (report, hostile(report)))
    assert "javascript:b" in bad.text
    assert "<imgsrc=e>" in bad.text
    kinds = [{(tag, *attrs) for tag, attrs in each.tags} for each in (calm, bad)]
    assert kinds[1] <= kinds[0] | {("code",), ("wbr",), ("br",)}
    for fixed in ("h1", "h2", "section", "details", "a"):
        counts = [[tag for tag, _ in each.tags].count(fixed) for each in (calm, bad)]
        assert counts[0] == counts[1], fixed


def test_html_in_the_markdown_is_text_but_for_the_templates_own() -> None:
    """Also where a template would forget to escape: only its few tags pass, and no attribute."""
    for bad in (
        "<script>alert(1)</script>",
        "a <img src=x onerror=alert(1)> b",
        "<details onclick=x>",
        "<summary><b onclick=x>y</b></summary>",
        "[a](javascript:alert(1)) <http://a.b>",
        "![x](http://a.b/c.png)",
    ):
        tokens = page._parser().parse(bad)
        found = Tree(page._html(tokens, "t", DRAWN)).tags
        assert {tag for tag, _ in found} <= {"p", "summary"}, bad
        assert not any(attrs for _, attrs in found), bad


def test_without_matplotlib_the_page_says_how_to_get_figures() -> None:
    text = page.page(examples.improved(), None)
    assert "<img" not in text
    assert "matplotlib is not installed" in text


def test_the_page_goes_where_it_may(gpu_advisor: Server, tmp_path: Path) -> None:
    """Beside the JSON or where it is told, again and again, and never over a file of the user's."""
    record = tmp_path / "report.json"
    record.write_text(writing.dump(examples.partial()), encoding="utf-8")
    done = gpu_advisor.call("report", str(record), "--html", cwd=tmp_path)
    place = tmp_path / "report.html"
    assert (done.returncode, done.stdout.strip()) == (0, str(place))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json"]
    writing.claim_page(place)  # may be written again
    mine = tmp_path / "mine.html"
    mine.write_text("<p>mine</p>")
    done = gpu_advisor.call("report", str(record), "--html", str(mine), cwd=tmp_path)
    assert done.returncode == OutputRefusedError.exit_code
    assert mine.read_text() == "<p>mine</p>"
    with pytest.raises(OutputRefusedError, match=r"name it \*\.html"):
        writing.claim_page(tmp_path / "page.txt")


def test_secrets_are_masked_on_the_page(tmp_path: Path) -> None:
    place = tmp_path / "report.html"
    secret = "hf_" + "a1B2c3D4" * 4
    report = examples.partial(command=f"python run.py --token {secret}")
    writing.write_page(report, place, writing.claim_page(place), "report")
    assert secret not in place.read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_both_schemes(scheme: str) -> None:
    """WCAG AA: 4.5 to 1 for everything that is read, on the page and on its shaded parts."""
    text = page.page(examples.improved(), None)
    roots = re.findall(r":root \{([^}]*)\}", text)
    colours = dict(re.findall(r"--(\w+): (#\w{6})", roots[("light", "dark").index(scheme)]))

    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    for ink in ("ink", "soft", "accent"):
        for paper in ("paper", "shade"):
            low, high = sorted([light(colours[ink]), light(colours[paper])])
            assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, paper)


def test_no_word_is_too_long_for_the_page() -> None:
    """Text outside of the tables, which scroll, breaks anywhere: a path or a label is one word."""
    style = re.search(r"<style>(.*?)</style>", page.page(examples.improved(), {}), re.DOTALL)
    assert style
    rules = re.findall(r"^([^{}\n]+) \{([^}]*)\}", style[1], re.MULTILINE)
    breaking = {
        tag.strip()
        for names, rule in rules
        if "overflow-wrap: anywhere" in rule
        for tag in names.split(",")
    }
    assert breaking >= {"h1", "h2", "h3", "p", "li", "summary", "code"}
