"""Files of a report: written whole, read with care."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from advisor import files, masking
from advisor.errors import OutputRefusedError, ReportError
from advisor.report import figures, html, sections
from advisor.report.schema import HEADLINE, SCHEMA_VERSION, Report
from advisor.report.sections import patch_file

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_PATCHES = 40
"""Suggestions that get a file of their own."""


def claim(
    report_md: Path,
    *,
    never: Iterable[Path] = (),
    like: Path | None = None,
    overwrite: bool = False,
) -> files.Claim:
    """Claim the places of a report.

    They are `report_md`, and beside it, with the same stem, the JSON, the figures and the patches.
    To be called before anything is measured. `never` are files that must stay; nothing is open to
    more people than the file `like`. Raises OutputRefusedError when one of the places is another's,
    or cannot be written.
    """
    if report_md.suffix == ".json":
        msg = f"{report_md} would be overwritten by the JSON beside it; name the report *.md."
        raise OutputRefusedError(msg)
    real = Path(os.path.realpath(report_md))
    numbers = {*range(1, MAX_PATCHES + 1), *_numbered_patches(real)}
    places = [
        real,
        real.with_suffix(".json"),
        *(_figures(real) / name for name in figures.FILES),
        *(real.with_name(patch_file(real.stem, number)) for number in sorted(numbers)),
    ]
    return files.claim(places, never=never, like=like, overwrite=overwrite)


def write(report: Report, report_md: Path, claimed: files.Claim | None = None) -> None:
    """Write the report into its places.

    `claim` found them, or finds them here. What looks like a secret is masked. Raises
    OutputRefusedError when a place cannot be written.
    """
    claimed = claimed or claim(report_md)
    report_md = Path(os.path.realpath(report_md))
    report = masked(report)
    # The record first: if drawing fails, everything can be drawn from it again.
    claimed.write(report_md.with_suffix(".json"), dump(report).encode())
    folder = _figures(report_md)
    drawn = figures.draw(report)
    if drawn is None:
        drawn = _kept_figures(report, folder)
    else:
        for name, svg in drawn.items():
            claimed.write(folder / name, svg + _figure_mark(report))
    _write_patches(report, report_md, claimed)
    text = sections.render(report, report_md.stem, folder.name, drawn)
    text = f"{text}\n{files.MARKS['.md']}\n"
    claimed.write(report_md, text.encode(errors="replace"))


def holds_finished(report_md: Path) -> bool:
    """True if this place holds a finished search's report."""
    try:
        return not load(Path(os.path.realpath(report_md)).with_suffix(".json")).unfinished
    except ReportError:
        return False


def claim_page(
    place: Path, *, never: Iterable[Path] = (), like: Path | None = None, overwrite: bool = False
) -> files.Claim:
    """Claim the place of the HTML page.

    Raises OutputRefusedError when it is another's, or cannot be written, or its name does not end
    in `.html`.
    """
    if place.suffix != ".html":
        msg = f"{place} would hold HTML, and its name does not say so; name it *.html."
        raise OutputRefusedError(msg)
    return files.claim([place], never=never, like=like, overwrite=overwrite)


def write_page(report: Report, place: Path, claimed: files.Claim, source: Path) -> None:
    """Write the HTML page of `report`.

    `source` is the report.json; its figures and patches lie beside it. Secrets are masked. Raises
    OutputRefusedError when the page cannot be written.
    """
    report = masked(report)
    drawn = figures.draw(report)
    if drawn is None:
        drawn = _kept_figures(report, _figures(Path(os.path.realpath(source))))
    text = html.page(report, drawn, source.stem)
    claimed.write(place, f"{text}{files.MARKS['.html']}\n".encode(errors="replace"))


def masked(report: Report) -> Report:
    """`report` without what looks like a secret.

    A patch that would show one cannot be masked, because it would not apply any more: it is left
    out, and its advice says so.
    """
    suggestions = [
        entry
        if entry.patch is None or _mask_patch(entry.patch) == entry.patch
        else entry.model_copy(
            update={
                "patch": None,
                "detail": f"{entry.detail} (No patch is shown, because the lines around the change "
                "hold what looks like a secret.)",
            }
        )
        for entry in report.suggestions
    ]
    fields = report.model_copy(update={"suggestions": suggestions}).model_dump(by_alias=True)
    patches = [entry.pop("patch") for entry in fields["suggestions"]]
    fields = masking.mask_value(fields)
    for entry, patch in zip(fields["suggestions"], patches, strict=True):
        entry["patch"] = patch
    return Report.model_validate(fields)


def load(path: Path) -> Report:
    """Load the report in `path`.

    Raises ReportError: it is missing, not JSON, of another schema version, or a field is wrong.
    """
    try:
        fields = json.loads(files.read_whole(path))
    except OSError as problem:
        reason = problem.strerror or problem
        msg = f"{path} could not be read: {reason}. Name the report.json of a run."
        raise ReportError(msg) from problem
    except RecursionError as problem:
        msg = f"{path} is nested too deeply to be a report. Name the report.json of a run."
        raise ReportError(msg) from problem
    except ValueError as problem:
        msg = f"{path} is not JSON: {problem}. Name the report.json, not the report.md."
        raise ReportError(msg) from problem
    version = fields.get("schema_version") if isinstance(fields, dict) else None
    if version != SCHEMA_VERSION:
        msg = (
            f"{path} has schema_version {version!r:.80}; this gpu-advisor reads {SCHEMA_VERSION}. "
            "Render it with the version that wrote it."
        )
        raise ReportError(msg)
    try:
        return Report.model_validate(fields)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        msg = f"{path}: {where}: {first['msg']} (found {first['input']!r:.80})."
        raise ReportError(msg) from problem


def dump(report: Report) -> str:
    """`report` as the text of report.json."""
    return report.model_dump_json(by_alias=True, indent=2) + "\n"


def headline(report: Report) -> dict[str, Any]:
    """The one object that `optimize --json` prints."""
    fields = report.model_dump(mode="json", by_alias=True)
    return {key: fields[key] for key in HEADLINE}


def _write_patches(report: Report, report_md: Path, claimed: files.Claim) -> None:
    """Write one file for each patch.

    Those of an earlier report go.
    """
    patches = {
        number: entry.patch
        for number, entry in enumerate(report.suggestions[:MAX_PATCHES], 1)
        if entry.patch
    }
    for number in _numbered_patches(report_md) - patches.keys():
        place = report_md.with_name(patch_file(report_md.stem, number))
        if place in claimed.places:  # any other one came meanwhile
            claimed.remove(place)
    for number, patch in patches.items():
        head = f"{files.MARKS['.patch']}: suggestion {number} of {report_md.name}\n"
        place = report_md.with_name(patch_file(report_md.stem, number))
        claimed.write(place, (head + patch).encode(errors="replace"))


def _numbered_patches(report_md: Path) -> set[int]:
    """Numbers of the patch files that lie beside `report_md`."""
    name = re.compile(re.escape(f"{report_md.stem}-advice-") + r"([1-9][0-9]{0,5})\.patch")
    try:
        entries = os.listdir(report_md.parent)  # noqa: PTH208  names only
    except OSError:
        return set()
    return {int(found[1]) for entry in entries if (found := name.fullmatch(entry))}


def _mask_patch(patch: str) -> str:
    """Mask a patch; in code, only inside quotes."""
    targets = [line for line in patch.splitlines() if line.startswith("+++ ")]
    code = all(line.split("\t")[0].endswith(".py") for line in targets)
    return masking.mask_code(patch) if code else masking.mask_text(patch)


def _kept_figures(report: Report, folder: Path) -> dict[str, bytes]:
    """Figures that an earlier call drew of this report."""
    kept = {}
    for figure in figures.plan(report):
        try:
            svg = (folder / figure.file).read_bytes()
        except OSError:
            continue
        if svg.endswith(_figure_mark(report)):
            kept[figure.file] = svg
    return kept


def _figure_mark(report: Report) -> bytes:
    """Last lines of a figure: its report and our mark."""
    created = re.sub(r"[^0-9A-Za-z:.+]", "", report.created)
    return f"<!-- of the report of {created} -->\n{files.MARKS['.svg']}\n".encode()


def _figures(report_md: Path) -> Path:
    return report_md.with_name(f"{report_md.stem}-figures")
