"""Golden reports, from recorded ones: `python -m tests.report.golden` renders them again."""

from pathlib import Path

from advisor.report import view, writing
from advisor.report.schema import Report

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


def report(name: str, **changes: object) -> Report:
    """The recorded report of that name, with other fields where `changes` has them."""
    found = writing.load(FOLDER / f"{name}.json")
    return found.model_copy(update=changes)


def markdown(name: str) -> str:
    """The Markdown of that report, with its figure drawn."""
    return view.render(report(name))
