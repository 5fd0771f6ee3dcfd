"""Count the size and the plainness of the code.

python3 .ci/size.py            prints the counts
python3 .ci/size.py --check    fails where a count is over its ceiling
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
CEILINGS = {"advisor": 33_000, "tests": 26_000, "benchmarks": 7_000}
"""Lines of Python in each folder."""
WIDEST, MOST_COMPLEX = 38.26, 4.59
"""Mean width of a line and mean complexity of a function, before the house was rebuilt."""
RIDDLE = re.compile(
    r"(What|Where|Who|Whom|Whose|Whether|How|Of|So many|Nobody|Nothing|None of)\b"
)
BRANCHES = (
    ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.comprehension, ast.match_case,
)  # fmt: skip


def sources(folder: str) -> Iterator[Path]:
    """Python files below `folder`."""
    yield from sorted((ROOT / folder).rglob("*.py"))


def lines(folder: str) -> int:
    """Lines of Python below `folder`."""
    return sum(len(path.read_text().splitlines()) for path in sources(folder))


def first_lines() -> list[str]:
    """First line of every docstring of the package."""
    found = []
    for path in sources("advisor"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(
                node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
            ):
                text = ast.get_docstring(node)
                if text:
                    found.append(text.splitlines()[0])
    return found


def complexity(function: ast.AST) -> int:
    """Cyclomatic complexity: one, and one for each branch."""
    nodes = list(ast.walk(function))
    joined = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    return 1 + joined + sum(isinstance(node, BRANCHES) for node in nodes)


def words_a_sentence(text: str) -> float:
    """Mean length of the sentences of a page, tables and code left out."""
    text = re.sub(r"```.*?```", " ", text, flags=re.DOTALL)
    text = re.sub(r"^\s*(\|.*|#.*|!\[.*|<.*)$", " ", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]*`", "code", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    sentences = re.split(r"(?<=[.!?:])\s+|\n\s*\n|\n\s*[-*] ", text)
    lengths = [len(each.split()) for each in sentences if len(each.split()) >= 3]
    return statistics.mean(lengths) if len(lengths) > 5 else 0.0


def main() -> None:
    """Print the counts, and fail on request where one is over its ceiling."""
    over = []
    for folder, ceiling in CEILINGS.items():
        count = lines(folder)
        files = len(list(sources(folder)))
        print(f"{folder}: {count:,} lines in {files} files (ceiling {ceiling:,})")
        if count > ceiling:
            over.append(folder)
    rooms = [path for path in sorted((ROOT / "advisor").iterdir()) if path.is_dir()]
    for room in rooms:
        count = lines(f"advisor/{room.name}")
        if count:
            print(f"  {room.name}: {count:,}")
    firsts = first_lines()
    riddles = sum(bool(RIDDLE.match(each)) for each in firsts) / len(firsts)
    median = statistics.median(len(each.split()) for each in firsts)
    print(
        f"docstrings: median {median:g} words, {riddles:.1%} begin with a relative clause"
    )
    if median > 9 or riddles > 0.05:
        over.append("docstrings")
    trees = [ast.parse(path.read_text()) for path in sources("advisor")]
    functions = [
        node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    lengths = [
        len(line) for path in sources("advisor") for line in path.read_text().splitlines()
    ]
    mean = statistics.mean(complexity(each) for each in functions)
    width = statistics.mean(lengths)
    if width > WIDEST or mean > MOST_COMPLEX:
        over.append("density")
    print(f"functions: {len(functions):,}, mean complexity {mean:.2f}")
    print(f"line length: mean {width:.2f}")
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        words = words_a_sentence(page.read_text())
        if words > 20:
            over.append(page.name)
        print(f"{page.relative_to(ROOT)}: {words:.1f} words a sentence")
    if over and "--check" in sys.argv[1:]:
        sys.exit(f"over the ceiling: {', '.join(over)}")


if __name__ == "__main__":
    main()
