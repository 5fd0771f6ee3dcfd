"""Files and page of a report: written whole, read with care."""

import base64
import contextlib
import glob
import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup
from pydantic import BaseModel, ValidationError

from advisor import files, masking
from advisor.errors import OutputRefusedError, ReportError
from advisor.report import figures, layout, view
from advisor.report.markdown import one_line
from advisor.report.schema import HEADLINE, Report
from advisor.report.view import figure_file, patch_file

Record = TypeVar("Record", bound=BaseModel)

EMBEDDED = "data:image/svg+xml;base64,"


def page(report: Report) -> str:
    """`report` as a page with its figures inside.

    A report quotes the program: names, errors, lines of code. Whatever they spell, the page has
    no link, no image but its own figures, and no script but ours, whose digest it names.
    """
    images = {
        quote(figure_file(report.report, name)): EMBEDDED + base64.b64encode(svg).decode()
        for name, svg in figures.draw(report).items()
    }
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    parser.disable(("link", "autolink", "reference"))  # of targets only figures are taken
    parser.normalizeLink = lambda url: images.get(url, "")  # type: ignore[method-assign]
    parser.validateLink = lambda url: url in images.values()  # type: ignore[method-assign]
    parser.add_render_rule("fence", coloured)
    title = one_line(f"{view.subject(report)}: {view.title(report)}")
    body = Markup(parser.render(view.render(report)))  # noqa: S704  the renderer escapes
    script = Markup(layout.source("page.js"))  # noqa: S704  our own
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return layout.render(
        "page.html.j2",
        {
            "report": report,
            "title": title,
            "body": body,
            "script": script,
            "script_digest": f"sha256-{digest}",
        },
    )


LINES = {"+": "added", "-": "removed", "@": "hunk"}
"""Class of a line of a diff, by its first letter."""


def coloured(_: object, tokens: Sequence[Token], at: int, *__: object) -> str:
    """A code block; lines of a diff have a class each."""
    lines = escape(tokens[at].content, quote=False).splitlines()
    if tokens[at].info == "diff":
        lines = [
            f'<span class="{LINES[line[0]]}">{line}</span>' if line[:1] in LINES else line
            for line in lines
        ]
    body = "\n".join(lines)
    kind = ' class="text"' if tokens[at].info == "text" else ""
    return f"<pre{kind}><code>{body}\n</code></pre>\n"


NO_PATCH = " (No patch is shown: the lines around it hold what looks like a secret.)"


def claim(
    place: Path,
    *,
    page: bool = False,
    never: Iterable[Path] = (),
    like: Path | None = None,
    overwrite: bool = False,
) -> files.Claim:
    """Claim `place`, and for a report JSON and figures beside it.

    A patch's place is claimed as it is written, since its name follows its text.
    Files in `never` stay; nothing opens to more people than `like`. Raises
    OutputRefusedError if a place is another's, or cannot be written.
    """
    is_other = place.suffix != ".html" if page else place.suffix == ".json"
    if is_other:
        kind = "html" if page else "md"
        msg = f"{place} is the name of another file; name the report *.{kind}."
        raise OutputRefusedError(msg)
    real = Path(os.path.realpath(place))
    places = [real]
    if not page:
        places += [real.with_suffix(".json")]
        places += [real.parent / figure_file(real.name, name) for name in figures.NAMES]
    return files.claim(places, never=never, like=like, overwrite=overwrite)


def write(report: Report, report_md: Path, claimed: files.Claim | None = None) -> None:
    """Write the report into its places, masked. Raises OutputRefusedError."""
    claimed = claimed or claim(report_md)
    report_md = Path(os.path.realpath(report_md))
    report = masked(report)
    # The record first: if drawing fails, all can be drawn from it.
    claimed.write(report_md.with_suffix(".json"), dump(report).encode())
    drawn = figures.draw(report)
    for name in figures.NAMES:
        place = report_md.parent / figure_file(report_md.name, name)
        if name in drawn:
            claimed.write(place, drawn[name] + f"{files.MARKS['.svg']}\n".encode())
        elif place.exists():  # of an earlier report
            claimed.remove(place)
    write_patches(report, report_md, claimed)
    text = view.render(report.model_copy(update={"report": str(report_md)}))
    claimed.write(report_md, f"{text}\n{files.MARKS['.md']}\n".encode(errors="replace"))


def holds_finished(report_md: Path) -> bool:
    """True if this place holds a finished search's report."""
    try:
        return not load(Path(os.path.realpath(report_md)).with_suffix(".json")).unfinished
    except ReportError:
        return False


def write_page(report: Report, place: Path, claimed: files.Claim) -> None:
    """Write a report as a page, masked, with its patches beside. Raises OutputRefusedError."""
    place = Path(os.path.realpath(place))
    report = masked(report).model_copy(update={"report": str(place)})
    marked = f"{page(report)}\n{files.MARKS['.html']}\n"
    claimed.write(place, marked.encode(errors="replace"))
    write_patches(report, place, claimed)


def write_patches(report: Report, beside: Path, claimed: files.Claim) -> None:
    """Write a report's patches; remove those of earlier ones that no page beside names."""
    stem = beside.stem
    named: dict[Path, str] = {}
    for number, entry in enumerate(report.suggestions, 1):
        if entry.patch:
            head = f"{files.MARKS['.patch']}: suggestion {number} of {stem}\n"
            place = beside.with_name(patch_file(beside.name, entry.patch))
            named.setdefault(place, head + entry.patch)
    page = beside.with_suffix(".html")
    still = page.read_text(errors="replace") if page.is_file() else ""
    earlier = [
        place
        for place in beside.parent.glob(f"{glob.escape(stem)}-*.patch")
        if place not in named and place.name not in still and _is_patch_of(place, stem)
    ]
    claimed = claimed.also([*named, *earlier])
    for place, text in named.items():
        claimed.write(place, text.encode(errors="replace"))
    for place in earlier:
        claimed.remove(place)


def _is_patch_of(place: Path, stem: str) -> bool:
    """True for a patch that a report of this name wrote."""
    ours = (
        rf"{re.escape(files.MARKS['.patch'])}: suggestion \d+ of {re.escape(stem)}(\.md)?\n"
    )
    with contextlib.suppress(OSError), place.open(errors="replace") as file:
        return re.fullmatch(ours, file.readline()) is not None
    return False


def masked(report: Report) -> Report:
    """Mask secrets; a patch that they would break is left out, and said."""
    fields = report.model_dump()
    patches = [entry.pop("patch") for entry in fields["suggestions"]]
    fields = masking.mask_value(fields)
    for entry, patch in zip(fields["suggestions"], patches, strict=True):
        is_clean = patch is None or _mask_patch(patch) == patch
        entry["patch"] = patch if is_clean else None
        entry["detail"] += "" if is_clean else NO_PATCH
    return Report.model_validate(fields)


def load(path: Path) -> Report:
    """Load the report in `path`. Raises ReportError."""
    return read(path, Report, "report.json")


def read(path: Path, kind: type[Record], name: str) -> Record:
    """Read a record of ours, called `name`. Raises ReportError."""
    try:
        return kind.model_validate_json(files.read_whole(path))
    except FileNotFoundError:
        hint = files.near(path) or f"`optimize` writes a {name}; name that one."
        msg = f"{path} is not there. {hint}"
        raise ReportError(msg) from None
    except OSError as problem:
        reason = str(problem)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        reason = f"{where}: {first['msg']} (found {first['input']!r:.80})"
    unreadable = f"{path} is no {name} that this gpu-advisor can read ({reason})"
    msg = f"{unreadable}. Name a {name} of `optimize`."
    raise ReportError(msg)


def dump(report: Report) -> str:
    return report.model_dump_json(indent=2) + "\n"


def headline(report: Report) -> dict[str, Any]:
    """Object that `optimize --json` prints."""
    return report.model_dump(mode="json", include=set(HEADLINE))


def _mask_patch(patch: str) -> str:
    """Mask a patch; in code, only inside quotes."""
    targets = [line for line in patch.splitlines() if line.startswith("+++ ")]
    code = all(line.split("\t")[0].endswith(".py") for line in targets)
    return masking.mask_text(patch, code=code)
