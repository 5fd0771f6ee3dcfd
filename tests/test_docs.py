"""What is committed beside the code agrees with it: schemas, named configs, release notes."""

import ast
import json
import re
import runpy
import shutil
import sys
import threading
import tomllib
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urljoin
from urllib.request import urlopen

import jsonschema
import pytest

from advisor import errors
from tests import schemas
from tests.support import browser
from tests.support.processes import ran

CHANGELOG = """# Changelog

## Unreleased

- later

## [0.2.0] - 2026-12-01

- a line
### Fixed
- another

## 0.1.0

- first
"""


def test_the_section_of_a_version_ends_at_the_next(root) -> None:
    """Release notes come from the changelog, and only for the version that is built."""
    section = runpy.run_path(str(root / ".ci" / "release.py"))["section"]
    assert section(CHANGELOG, "0.2.0") == "- a line\n### Fixed\n- another"
    assert section(CHANGELOG, "0.1.0") == "- first"
    assert section(CHANGELOG, "0.2") is None


def test_every_config_that_the_page_of_workloads_names_exists(root) -> None:
    page = (root / "docs/founding-systems.md").read_text(encoding="utf-8")
    configs = re.findall(r"\bconfig/[\w.]+", page)
    assert configs
    for config in configs:
        assert (root / config).exists(), config


@pytest.mark.parametrize(
    ("page", "section", "left_out"),
    [
        ("isolation.md", r"(.*)", {"benchmark"}),
        ("gate.md", r"\n## Security\n(.*?)\n## ", {"none"}),  # settings of GitHub and of a host
        ("referee.md", r"\n## What an edit cannot fake\n(.*?)\n## ", set()),
    ],
    ids=["isolation", "gate", "referee"],
)
def test_each_promise_names_the_test_that_holds_it(root, page, section, left_out) -> None:
    """In comments at the end of its line; only headings and what introduces a list need none."""
    text = "\n".join(path.read_text() for path in (root / "tests").rglob("test_*.py"))
    tests = set(re.findall(r"^def (test_\w+)", text, re.MULTILINE)) | left_out
    whole = (root / "docs" / page).read_text(encoding="utf-8")
    found = re.search(section, whole, re.DOTALL)
    assert found
    for line in found[1].splitlines():
        rule = re.fullmatch(
            r"#.*|\|[ -|]*|\| (kind|deputy|who) \|.*|.*:|.*stand around them\.|", line
        )
        if rule is None:
            named = re.findall(r"<!-- (\w+) -->", line)
            assert named, line
            assert set(named) <= tests, line


def test_the_page_of_isolation_names_the_codes_of_the_program(root) -> None:
    page = (root / "docs/isolation.md").read_text(encoding="utf-8")
    codes = re.findall(r"`([a-z-]+)`(?:, | \()(\d+)\)", page)
    assert {kind for kind, _ in codes} == {"write-denied", "outputs-not-apart", "disk-full"}
    for kind, code in codes:
        assert errors.FAILURE_EXIT_CODES[kind] == int(code)


def rows_of_troubles(root) -> list[tuple[str, str]]:
    """Code and words of the message, of each row of the page of troubles."""
    page = (root / "docs/troubleshooting.md").read_text(encoding="utf-8")
    return re.findall(r"^\| (\d+) \| (.+?) \| .+ \|$", page, re.MULTILINE)


def sentences(root) -> str:
    """Every text of the program; what is filled in stands as an ellipsis."""
    found = []
    for path in (root / "advisor").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [p.value if isinstance(p, ast.Constant) else "..." for p in node.values]
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def test_every_exit_code_has_a_row_in_the_page_of_troubles(root) -> None:
    codes = {sub.exit_code for sub in subclasses(errors.AdvisorError)}
    codes |= {errors.AdvisorError.exit_code, *errors.FAILURE_EXIT_CODES.values()}
    codes |= set(errors.OPTIMIZE_EXIT_CODES.values()) - {0}
    codes -= {errors.NoBaselineError.exit_code}  # the gate's
    assert {int(code) for code, _ in rows_of_troubles(root)} == codes


def subclasses(cls: type[errors.AdvisorError]) -> list[type[errors.AdvisorError]]:
    own = [sub for sub in cls.__subclasses__() if sub.__module__ == errors.__name__]
    return [*own, *(subclass for sub in own for subclass in subclasses(sub))]


def test_the_words_of_each_message_there_are_printed_somewhere(root) -> None:
    """A reader searches the page for what the terminal shows."""
    printed = sentences(root)
    for _, words in rows_of_troubles(root):
        for piece in filter(None, (each.strip(" `.") for each in words.split("..."))):
            assert piece in printed


@pytest.mark.parametrize("path", schemas.SCHEMAS, ids=lambda path: path.name)
def test_a_committed_schema_has_not_drifted(path) -> None:
    """`python -m tests.schemas` writes it anew."""
    text = path.read_text(encoding="utf-8")
    assert text == schemas.schema_of(schemas.SCHEMAS[path])
    jsonschema.Draft202012Validator.check_schema(json.loads(text))


def test_an_editor_accepts_what_the_program_does(root) -> None:
    text = (root / "gpu-advisor.schema.json").read_text(encoding="utf-8")
    schema = jsonschema.Draft202012Validator(json.loads(text))
    own = tomllib.loads((root / "gpu-advisor.toml").read_text(encoding="utf-8"))
    assert list(schema.iter_errors(own)) == []
    for good in ({"budget": "10m"}, {"budget": 600}, {"smallest-gain": "3%"}):
        assert schema.is_valid({"defaults": good})
    for bad in ({"budget": True}, {"bugdet": "10m"}):
        assert not schema.is_valid({"defaults": bad})


INSTALLED = re.compile(r"(?:pip\"?|pipx|uv tool) install[^\n`]*(?:\\\n[^\n`]*)?")


def test_no_line_installs_a_name_that_an_index_does_not_have(root) -> None:
    """Whoever registers it there would run on the reader's machine."""
    pages = [root / "README.md", root / "action.yml", *(root / "docs").rglob("*.md")]
    pages += (root / "docs").rglob("*.yml")
    lines = [line for page in pages for line in INSTALLED.findall(page.read_text("utf-8"))]
    assert any("git+" in line for line in lines)
    for line in lines:
        words = line.partition("install")[2].partition("&&")[0]
        assert not re.search(r"(?<![/\w])gpu-advisor(?![/\w])", words)


@pytest.fixture(scope="module")
def site(root, tmp_path_factory) -> Path:
    """The site, as mkdocs builds it."""
    pytest.importorskip("mkdocs")
    place = tmp_path_factory.mktemp("site")
    words = ("-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place))
    done = ran(sys.executable, *words, cwd=root, timeout=120)
    assert done.returncode == 0, done.stderr
    return place


LINK = re.compile(r'(?:href|src)="([^"#]+)(?:#([^"]*))?"')


def test_the_site_has_a_first_page_and_every_link_of_its_pages_leads_somewhere(root, site) -> None:
    """Inside the site to a file of it; into the repository to a file of the checkout."""
    assert (site / "index.html").is_file()
    for page in site.rglob("*.html"):
        if page.name == "404.html":  # its links begin at the root of the host
            continue
        for target, _ in LINK.findall(page.read_text(encoding="utf-8")):
            inside, blob = "://" not in target, "/gpu-advisor/blob/main/"
            if blob in target:
                assert (root / target.partition(blob)[2]).exists(), (page.name, target)
            elif inside and not target.startswith(("mailto:", "data:")):
                place = page.parent / target
                assert place.exists() or (place / "index.html").is_file(), (page.name, target)


def test_the_first_page_has_claim_picture_commands_and_a_number(site) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    for part in (
        "<h1",
        "first-screen.svg",
        "git+https://github.com/gpu-advisor",
        "as many tiles a second",
        "slate",
        "edit/main",
    ):
        assert part in text


class Shown(HTMLParser):
    """Names and links of a page, as the browser holds it once its scripts ran."""

    def __init__(self, dom: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: set[str] = set()
        self.feed(dom)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a link can lead to, and each link of an anchor or picture."""
        for key, value in attrs:
            if key in {"id", "name"} and value:
                self.names.add(value)
            if value and (tag, key) in {("a", "href"), ("img", "src")}:
                self.links.add(value)


class Silent(SimpleHTTPRequestHandler):
    """Serves a folder without a line for each request."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser")
def test_a_browser_reaches_every_page_and_place_that_a_link_of_the_site_names(
    site, root, tmp_path
) -> None:
    """From the first page on; no script fails, and no page asks another host for a part."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        home = f"http://127.0.0.1:{server.server_port}/"

        def opened(address: str) -> Shown:
            done = ran(*browser.words(tmp_path), "--dump-dom", address, cwd=tmp_path, timeout=90)
            assert "CONSOLE" not in done.stderr, done.stderr
            return Shown(done.stdout)

        pages: dict[str, Shown] = {}
        links: set[tuple[str, str]] = set()
        waiting = [home]
        while waiting:
            address = waiting.pop()
            pages[address] = opened(address)
            for link in pages[address].links:
                whole = urljoin(address, link)
                links.add((address, whole))
                page = whole.partition("#")[0]
                if page.startswith(home) and page.endswith(("/", ".html")):
                    waiting += [page] * (page not in pages and page not in waiting)
        every = {path.parent.relative_to(site).as_posix() for path in site.rglob("index.html")}
        assert {each.removeprefix(home).rstrip("/") or "." for each in pages} == every
        for origin, link in sorted(links):
            page, _, name = link.partition("#")
            if page in pages:
                assert not name or unquote(name) in pages[page].names, (origin, link)
            elif page.startswith(home):
                with urlopen(page, timeout=10) as answer:
                    assert answer.status == 200
            elif "/gpu-advisor/blob/main/" in page:
                assert (root / page.partition("/blob/main/")[2]).exists(), (origin, link)
            else:
                assert page.startswith(("https://", "mailto:", "data:")), (origin, link)
        server.shutdown()
