"""Holds the README to the truth: its two commands, its option tables, its links.

python3 .ci/readme.py test-command    prints the README's test command
python3 .ci/readme.py check           fails when the README says what is not so
python3 .ci/readme.py write           regenerates the option tables
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
TABLE = re.compile(r"<!-- options: (\w+) -->\n(.*?)<!-- end -->", re.DOTALL)


def commands() -> tuple[str, str]:
    """The two one-line commands under `## Try it`."""
    section = README.read_text().split("## Try it", 1)[1].split("\n## ", 1)[0]
    found = re.findall(r"```(?:bash|sh)\n([^\n]+)\n```", section)
    if len(found) != 2:
        sys.exit(f"README: expected two one-line commands under 'Try it', found {len(found)}")
    return found[0], found[1]


def option_table(name: str) -> str:
    """The options of one subcommand as a Markdown table, read from its parser."""
    sys.path.insert(0, str(ROOT))
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


def with_tables(text: str) -> str:
    """The README with every option table as the parsers have it."""
    return TABLE.sub(lambda m: f"<!-- options: {m[1]} -->\n{option_table(m[1])}<!-- end -->", text)


def check() -> None:
    """Exit with a sentence when the README is not true."""
    text = README.read_text()
    if with_tables(text) != text:
        sys.exit("README: an option table is stale; run `python3 .ci/readme.py write`")
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
    names = subprocess.run(
        [sys.executable, "-m", "advisor", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    for name in re.findall(r"^gpu-advisor (\w+)", blocks, re.MULTILINE):
        if f"  {name} " not in names:
            sys.exit(f"README: `gpu-advisor {name}` is no command")
    print("README: commands, option tables and links are true")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["test-command"]:
            print(commands()[1])
        case ["check"]:
            check()
        case ["write"]:
            README.write_text(with_tables(README.read_text()))
        case _:
            sys.exit(__doc__)
