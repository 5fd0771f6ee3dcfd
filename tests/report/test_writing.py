"""report.json is written whole and checked when read; report.md is made of it alone."""

import json
import math
import os
from dataclasses import replace

import jsonschema
import pytest

from advisor.errors import OutputRefusedError, ReportError
from advisor.report import writing
from advisor.report.schema import HEADLINE, Report, Side, SuggestionEntry
from tests import schemas
from tests.report import examples, golden


@examples.every_report
def test_what_is_written_is_read_back_and_rendered_again_to_the_byte(name, tmp_path) -> None:
    writing.write(golden.report(name), tmp_path / "report.md")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    read = writing.load(tmp_path / "report.json")
    assert read == golden.report(name)
    writing.write(read, tmp_path / "report.md")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@examples.every_report
def test_the_json_holds_to_its_schema(name) -> None:
    jsonschema.validate(
        json.loads(writing.dump(golden.report(name))), json.loads(schemas.schema_of(Report))
    )


def test_the_headline_stands_at_the_top_of_the_json() -> None:
    report = examples.improved()
    headline = writing.headline(report)
    assert tuple(headline) == HEADLINE
    written = json.loads(writing.dump(report))
    assert next(iter(written)) == "schema_version"
    assert list(written)[2 : len(HEADLINE) + 2] == list(HEADLINE)
    assert {key: written[key] for key in HEADLINE} == headline
    assert headline["gain"] == {"ratio": 1.42, "low": 1.35, "high": 1.49, "pairs": 6}
    assert {"old", "new", "knob_class", "path"} <= set(headline["changes"][0])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "is not there"),
        (b"# a report", "Invalid JSON"),
        (b"\xff\xfe", "Invalid JSON"),
        (b"[" * 100_000, "Invalid JSON"),
        (b"[]", "should be an object"),
        (b'{"schema_version": 3}', r"schema_version: Input should be 4 \(found 3\)"),
        (b'{"schema_version": 4, "verdict": "good"}', "verdict: Input should be .*'good'"),
        (b'{"schema_version": 4, "gian": 1}', "verdict: Field required"),
    ],
)
def test_a_report_that_cannot_be_read_is_named(content, said, tmp_path) -> None:
    path = tmp_path / "report.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ReportError, match=said) as caught:
        writing.load(path)
    assert str(path) in str(caught.value)


def test_a_place_that_cannot_be_written_is_named(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputRefusedError, match="cannot be written: Not a directory"):
        writing.write(examples.partial(), tmp_path / "file" / "report.md")
    with pytest.raises(OutputRefusedError, match=r"name the report \*\.md"):
        writing.write(examples.partial(), tmp_path / "report.json")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_writing_replaces_whole_files_and_leaves_no_draft(tmp_path) -> None:
    """A reader that holds the old file keeps it whole; the new one has its usual mode."""
    path = tmp_path / "deep" / "report.md"
    writing.write(examples.partial(), path)
    before = path.stat().st_ino
    with path.open() as held:
        writing.write(examples.partial(reason="A power cut."), path)
        assert "A power cut." not in held.read()
    assert "A power cut." in path.read_text()
    assert path.stat().st_ino != before
    assert not list(path.parent.glob(".*.tmp"))
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_report_is_finished_unless_its_call_ended_before_its_search(tmp_path) -> None:
    """Also one of a call that proved nothing; what cannot be read is none."""
    path = tmp_path / "report.md"
    assert not writing.holds_finished(path)
    writing.write(examples.partial(unfinished=True), path)
    assert not writing.holds_finished(path)
    writing.write(examples.partial(), path)
    assert writing.holds_finished(path)
    (tmp_path / "report.json").write_text("{}")
    assert not writing.holds_finished(path)


def test_a_linked_report_stays_a_link(tmp_path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "report.md"
    link.symlink_to(tmp_path / "real" / "report.md")
    writing.write(examples.partial(), link)
    assert link.is_symlink()
    assert {path.suffix for path in (tmp_path / "real").iterdir()} == {".md", ".json"}


def test_what_json_cannot_hold_is_not_measured_or_a_question_mark(tmp_path) -> None:
    """Values that are not finite, and logs that are no Unicode."""
    side = Side(units_per_s=math.nan, peak_mem_gib=math.inf)
    broken = b"caf\xe9".decode("utf-8", "surrogateescape")
    writing.write(examples.partial(before=side, notes=[broken]), tmp_path / "report.md")
    read = writing.load(tmp_path / "report.json")
    assert read.before.units_per_s is None
    assert read.before.peak_mem_gib is None
    assert read.notes == ["caf?"]
    assert "caf?" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_values_keep_their_type() -> None:
    """`true` is not 1, and 1.0 is not 1."""
    change = examples.improved().changes[0]
    for value in (True, 1, 1.0, "1", None):
        report = examples.improved(changes=(replace(change, old=value),))
        read = Report.model_validate_json(writing.dump(report)).changes[0]
        assert read.old == value
        assert type(read.old) is type(value)


def test_a_page_of_an_earlier_call_never_names_a_later_patch(tmp_path) -> None:
    """Its own patch stays while the page names it, then goes; a patch of the user's stays."""

    def written(value: int) -> None:
        patch = f"--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-batch = 1\n+batch = {value}\n"
        entry = SuggestionEntry(title="t", detail="d", patch=patch)
        writing.write(examples.improved(suggestions=[entry]), tmp_path / "report.md")

    def page() -> str:
        place = tmp_path / "report.html"
        report = writing.load(tmp_path / "report.json")
        writing.write_page(report, place, writing.claim(place, page=True))
        return place.read_text()

    mine = tmp_path / "report-train-mine.patch"
    mine.write_text("mine\n")
    written(2)
    (first,) = set(tmp_path.glob("report-*.patch")) - {mine}
    assert first.name in page()
    held = first.read_bytes()
    written(4)
    (second,) = set(tmp_path.glob("report-*.patch")) - {mine, first}
    assert first.read_bytes() == held
    assert second.name in (tmp_path / "report.md").read_text()
    assert second.name in page()
    assert not first.exists()
    assert mine.read_text() == "mine\n"


def test_the_command_names_the_patch_where_it_lies(tmp_path) -> None:
    """From the folder of the call, in which the command is pasted."""
    patch = "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-batch = 1\n+batch = 2\n"
    entry = SuggestionEntry(title="t", detail="d", patch=patch)
    report = examples.improved(suggestions=[entry], cwd=str(tmp_path))
    writing.write(report, tmp_path / "out" / "r.md")
    (place,) = (tmp_path / "out").glob("*.patch")
    assert f"git apply out/{place.name}" in (tmp_path / "out" / "r.md").read_text()
