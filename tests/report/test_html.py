"""The HTML page: the Markdown again, with nothing in it that acts."""

import base64
import hashlib
import html as escapes
import re
import shutil
from html.parser import HTMLParser
from typing import Any

import pytest

from advisor.errors import OutputRefusedError
from advisor.report import figures, view, writing
from tests.report import examples, golden
from tests.report.test_golden import PARSER
from tests.support import browser
from tests.support.processes import ran

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

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if not {"style", "title", "footer", "script"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return "".join("".join(self.words).split())


@examples.every_report
def test_the_page_has_the_words_of_the_markdown_and_needs_no_other_file(name) -> None:
    report = golden.report(name)
    tree = Tree(writing.page(report))
    drawn = {base64.b64encode(svg).decode() for svg in figures.draw(report).values()}
    calm = re.sub(r"<[^>]*>", "", PARSER.render(view.render(report)))
    assert tree.text == "".join(escapes.unescape(calm).split())
    assert not tree.open
    for tag, attrs in tree.tags:
        assert tag not in {"link", "iframe", "object", "form", "svg", "a"}
        assert not any(attr.startswith("on") for attr in attrs)
        if "src" in attrs:
            assert attrs["src"].removeprefix(writing.EMBEDDED) in drawn
            assert attrs["alt"]


def test_no_script_runs_but_the_one_that_the_policy_names() -> None:
    """Its digest stands in the page's own policy, so that no text of a report can act."""
    page = writing.page(golden.report("gpu"))
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert "default-src 'none'" in page


def test_a_diff_has_colours_and_its_text_stays_whole() -> None:
    page = writing.page(golden.report("gpu"))
    assert '<span class="removed">-  batch_size: 16</span>' in page
    assert '<span class="added">+  batch_size: 64</span>' in page


@examples.every_report
def test_strings_of_the_user_stay_text(name) -> None:
    report = golden.report(name)
    calm, bad = (Tree(writing.page(each)) for each in (report, examples.hostile(report)))
    assert "javascript:b" in bad.text
    kinds = [{(tag, *attrs) for tag, attrs in each.tags} for each in (calm, bad)]
    added = {("code",), ("table",), ("tbody",), ("tr",), ("summary",), ("thead",), ("details",)}
    added |= {("th", "style"), ("td", "style"), ("span", "class")}
    assert kinds[1] <= kinds[0] | added
    for fixed in ("h1", "h2"):
        counts = [[tag for tag, _ in each.tags].count(fixed) for each in (calm, bad)]
        assert counts[0] == counts[1], fixed


def test_the_page_goes_beside_the_json_and_over_no_file_of_the_user(gpu_advisor, tmp_path) -> None:
    record = tmp_path / "report.json"
    record.write_text(writing.dump(examples.partial()), encoding="utf-8")
    done = gpu_advisor.call("report", str(record), "--html", cwd=tmp_path)
    place = tmp_path / "report.html"
    assert done.returncode == 0
    assert done.stdout.strip() == str(place)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json"]
    writing.claim(place, page=True)  # may be written again
    mine = tmp_path / "mine.html"
    mine.write_text("<p>mine</p>")
    done = gpu_advisor.call("report", str(record), "--html", "--output", str(mine), cwd=tmp_path)
    assert done.returncode == OutputRefusedError.exit_code
    assert mine.read_text() == "<p>mine</p>"
    with pytest.raises(OutputRefusedError, match=r"name the report \*\.html"):
        writing.claim(tmp_path / "page.txt", page=True)


def test_secrets_are_masked_on_the_page(tmp_path) -> None:
    place = tmp_path / "report.html"
    secret = "hf_" + "a1B2c3D4" * 4
    report = examples.partial(command=f"python run.py --token {secret}")
    writing.write_page(report, place, writing.claim(place, page=True))
    assert secret not in place.read_text()


MEASURE = """<iframe id=page width={width} height=900 srcdoc="{page}"></iframe>
<script>
page.onload = () => {{
  document.body.dataset.width = page.contentDocument.documentElement.scrollWidth;
  document.body.dataset.buttons = page.contentDocument.querySelectorAll("button.copy").length;
}};
</script>"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser")
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["gpu", "suggestions"])
def test_a_browser_shows_the_page_without_a_sideways_scroll(tmp_path, name, width) -> None:
    """On a phone as on a desk; each block of code has its button to copy."""
    page = writing.page(golden.report(name))
    frame = tmp_path / "frame.html"
    frame.write_text(MEASURE.format(width=width, page=escapes.escape(page)), encoding="utf-8")
    done = ran(*browser.words(tmp_path), "--dump-dom", frame.as_uri(), cwd=tmp_path, timeout=60)
    shown = {key: int(value) for key, value in re.findall(r'data-(\w+)="(\d+)"', done.stdout)}
    assert shown["width"] <= width
    assert shown["buttons"] == page.count("<pre")
