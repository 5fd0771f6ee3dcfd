"""A newcomer's way to a red gate, by docs/gate.md alone.

    python benchmarks/gate_newcomer.py [--install]

The page's program is written into a fresh repository, and its first console block is run there
command by command. Each command is printed with its seconds and its exit code.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INSTALL = f"python3 -m venv ~/tool && ~/tool/bin/pip install -q {ROOT}"
STEP = """
begun=$(date +%s%N); (exit $code); {command} >> log 2>&1; code=$?
echo "| \\`{shown}\\` | $(( ($(date +%s%N) - begun) / 100000000 )) | $code |"
"""


def block(page: str, language: str) -> str:
    """First code block of the page in this language."""
    found = re.search(rf"```{language}\n(.*?)```", page, re.DOTALL)
    if found is None:
        sys.exit(f"docs/gate.md has no block of {language}")
    return found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--install", action="store_true", help="install the tool first")
    args = parser.parse_args()
    page = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\$ (.*)$", block(page, "console"), re.MULTILINE)
    if args.install:
        commands = [INSTALL, 'export PATH="$HOME/tool/bin:$PATH"', *commands]
    with tempfile.TemporaryDirectory(prefix="gate-newcomer-") as home:
        project = Path(home, "project")
        project.mkdir()
        (project / "bench.py").write_text(block(page, "python"), encoding="utf-8")
        script = "git init -q; git config user.name n; git config user.email n@localhost; code=0\n"
        for command in commands:
            shown = re.sub(r'(["$])', r"\\\1", command)
            script += STEP.format(command=command, shown=shown)
        print("| command | tenths of a second | exit code |\n|---|--:|--:|", flush=True)
        subprocess.run(["bash", "-c", script], cwd=project, check=True)
        print(f"\n```\n{(project / 'log').read_text(encoding='utf-8')}```")


if __name__ == "__main__":
    main()
