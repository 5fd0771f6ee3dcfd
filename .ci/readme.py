"""Holds the README to the truth: its commands, option tables and links; calls in docs, too.

python3 .ci/readme.py test-command    prints the README's test command
python3 .ci/readme.py check           fails when the README says what is not so
python3 .ci/readme.py write           regenerates tables, and the first screen from its record
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
"""The package is imported inside functions: `test-command` runs before anything is installed."""

if TYPE_CHECKING:
    from collections.abc import Iterator

README, TROUBLES = ROOT / "README.md", ROOT / "docs" / "troubleshooting.md"
INDEX, SCREEN = ROOT / "docs" / "index.md", ROOT / "docs" / "first-screen.svg"
RECORD = ROOT / "benchmarks" / "results" / "dem_completion-cpu2.json"
"""report.json of the README's first command: what is said of it comes from there alone."""
RECORDED = re.compile(r"<!-- record -->\n(.*?)<!-- end -->", re.DOTALL)
FAILURES = re.compile(r"<!-- failures -->\n(.*?)<!-- end -->", re.DOTALL)
TABLE = re.compile(r"<!-- options: (\w+) -->\n(.*?)<!-- end -->", re.DOTALL)


def commands() -> tuple[str, str]:
    """The two one-line commands under `## Try it`."""
    section = README.read_text().split("## Try it", 1)[1].split("\n## ", 1)[0]
    found = re.findall(r"```(?:bash|sh)\n([^\n]+)\n```", section)
    if len(found) != 2:
        sys.exit(
            f"README: expected two one-line commands under 'Try it', found {len(found)}"
        )
    return found[0], found[1]


def option_table(name: str) -> str:
    """The options of one subcommand as a Markdown table, read from its parser."""
    from advisor.__main__ import build_parser

    rows = ["| option | meaning |", "| --- | --- |"]
    for action in build_parser(name)._actions:  # noqa: SLF001  argparse has no public listing
        if action.dest == "help":
            continue
        spelled = ", ".join(action.option_strings) or action.dest.upper()
        if action.option_strings and action.nargs != 0:
            spelled += " " + str(action.metavar or action.dest.upper())
        rows.append(f"| `{spelled}` | {action.help} |")
    return "\n".join(rows) + "\n"


def with_failures(text: str) -> str:
    """The page of troubles with the table of failures, as the program words them."""
    from advisor.errors import FAILURE_EXIT_CODES
    from advisor.runner.classify import NEXT_STEPS

    rows = ["| code | kind | do this |", "| --- | --- | --- |"]
    for kind, code in FAILURE_EXIT_CODES.items():
        step = NEXT_STEPS[kind].replace("|", "\\|")
        rows.append(f"| {code} | {kind} | {step} |")
    table = "\n".join(rows) + "\n"
    return FAILURES.sub(lambda _: f"<!-- failures -->\n{table}<!-- end -->", text)


def with_tables(text: str) -> str:
    """The README with every option table as the parsers have it."""
    return TABLE.sub(
        lambda m: f"<!-- options: {m[1]} -->\n{option_table(m[1])}<!-- end -->", text
    )


def with_record(text: str) -> str:
    """A page with what the recorded call gained, and its table of before and after."""
    from advisor import numbers
    from advisor.report import layout, view, writing

    report = writing.load(RECORD)
    free = report.gain_free if view.traded(report) else None
    gains = [
        f"{numbers.factor(gain.low)} to {numbers.factor(gain.high)}"
        if gain.high
        else gain.size
        for gain in (free, report.gain)
        if gain is not None
    ]
    table = layout.render("table.md.j2", {"table": view.before_and_after(report)})
    took = numbers.duration(report.wall_s)
    said = f"**{view.title(report)}**, found and proven in {took} (95 % {' and '.join(gains)}):"
    return RECORDED.sub(lambda _: f"<!-- record -->\n{said}\n\n{table}<!-- end -->", text)


def first_screen() -> str:
    """The recorded call's first screen as a terminal shows it: an SVG that loads no font."""
    import io

    from rich.console import Console
    from rich.markdown import Markdown

    from advisor.report import view, writing

    console = Console(file=io.StringIO(), record=True, width=100, force_terminal=True)
    console.print(Markdown(view.first_screen(writing.load(RECORD))))
    svg = console.export_svg(title="gpu-advisor", unique_id="first-screen")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL) + "\n"


def calls() -> Iterator[tuple[Path, list[str]]]:
    """Every call of gpu-advisor in a block of the README and of `docs/`."""
    for page in (README, *sorted((ROOT / "docs").glob("*.md"))):
        for block in re.findall(r"```(?:sh|text)\n(.*?)```", page.read_text(), re.DOTALL):
            for line in block.splitlines():
                if line.startswith("gpu-advisor "):
                    yield page, shlex.split(line, comments=True)


def parse(words: list[str]) -> None:
    """Parse one call. Raises AdvisorError or SystemExit where it is none."""
    from advisor.__main__ import build_parser

    _, name, *own = words[: words.index("--")] if "--" in words else words
    if not name.startswith("-"):
        build_parser(name).parse_args(own)


def check() -> None:
    """Exit with a sentence when the README is not true."""
    from advisor.errors import AdvisorError

    text = README.read_text()
    if with_tables(text) != text:
        sys.exit("README: an option table is stale; run `python3 .ci/readme.py write`")
    if with_failures(TROUBLES.read_text()) != TROUBLES.read_text():
        sys.exit("troubleshooting.md: stale; run `python3 .ci/readme.py write`")
    for page in (README, INDEX):
        if with_record(page.read_text()) != page.read_text():
            sys.exit(f"{page.name}: not its record; run `python3 .ci/readme.py write`")
    if first_screen() != SCREEN.read_text():
        sys.exit("first-screen.svg: stale; run `python3 .ci/readme.py write`")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        if not (ROOT / target).exists():
            sys.exit(f"README: the link to {target} leads nowhere")
    optimize, _ = commands()
    wanted = "gpu-advisor optimize config/dem_completion.json"
    if wanted not in optimize:
        sys.exit(f"README: the first command does not run `{wanted}`")
    for config in re.findall(r"\bconfig/\w+\.(?:json|yaml)\b", " ".join(commands())):
        if not (ROOT / config).is_file():
            sys.exit(f"README: {config} is not there")
    for page, words in calls():
        try:
            parse(words)
        except (AdvisorError, SystemExit) as problem:
            sys.exit(f"{page.name}: `{shlex.join(words)}` is no call: {problem}")
    print("README: commands, option tables and links are true")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["test-command"]:
            print(commands()[1])
        case ["check"]:
            check()
        case ["write"]:
            README.write_text(with_record(with_tables(README.read_text())))
            INDEX.write_text(with_record(INDEX.read_text()))
            SCREEN.write_text(first_screen())
            TROUBLES.write_text(with_failures(TROUBLES.read_text()))
        case _:
            sys.exit(__doc__)
