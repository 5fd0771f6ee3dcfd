"""Figures of how a tree of Python explains itself, as a report and not a gate.

python3 .ci/readability.py [FOLDER ...]          one row a folder; `advisor` where none is named
python3 .ci/readability.py --names [FILE ...]    each binding of a vague name, by place

A figure says where to look and not whether the code is good: a ceiling on it would be met by
words without content. Lower branching and fewer vague names read easier. Comments and longer
docstrings are worth something only where they tell what the code cannot.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

VAGUE = frozenset(
    ["found", "each", "own", "shown", "held", "most", "least", "known", "why"]
)
"""Names that say no noun: a reader has to look up what is bound to them."""
BRANCHES = (
    ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.comprehension,
    ast.match_case,
)  # fmt: skip
"""Each is one more path through a function, as is each further operand of `and` and `or`."""
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SOURCED = re.compile(
    r"benchmark|judg|measured|record|paper|https?:|doi|since .*version|source:|linux/|\w\([1-8]\)",
    re.IGNORECASE,
)
"""Words by which a constant's text tells where its number comes from: a page of the manual too."""


@dataclass(frozen=True)
class Figures:
    """Sums over the files of one folder."""

    files: int
    code_lines: int
    comment_lines: int
    docstrings: int
    paragraphs: int
    """Docstrings of more than one line."""
    bindings: int
    vague: int
    complexity: float
    """Mean over the functions of the paths through one (cyclomatic complexity)."""
    numbers: int
    """Constants of a module or class that are a number."""
    sourced: int
    """Those of them whose text says where the number comes from."""

    @property
    def row(self) -> tuple[str, ...]:
        return (
            f"{self.files}",
            f"{self.code_lines}",
            f"{_percent(self.comment_lines, self.code_lines):.1f}",
            f"{_percent(self.paragraphs, self.docstrings):.0f} %",
            f"{_percent(self.vague, self.bindings):.1f} %",
            f"{self.complexity:.2f}",
            f"{self.sourced} of {self.numbers}",
        )


HEADER = (
    "tree", "files", "lines of code", "comments a 100 lines", "docstrings of more than a line",
    "vague bindings", "branching of a function", "numbers with a source",
)  # fmt: skip


def _percent(part: float, whole: float) -> float:
    return 100.0 * part / whole if whole else 0.0


def bindings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each variable that is bound: assigned, looped over, taken as argument."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def complexity(function: ast.AST) -> int:
    """Paths through a function, 1 without a branch; functions inside it are their own."""
    paths, waiting = 1, list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, FUNCTIONS):
            continue
        paths += isinstance(node, BRANCHES)
        if isinstance(node, ast.comprehension):
            paths += len(node.ifs)
        elif isinstance(node, ast.BoolOp):
            paths += len(node.values) - 1
        waiting += ast.iter_child_nodes(node)
    return paths


def constants(tree: ast.AST, lines: list[str]) -> Iterator[str]:
    """Text beside each number in capitals: its comment, and the docstring or comment around.

    A comment above several of them, which stand without an empty line between, is that of all.
    """
    for node in ast.walk(tree):
        body = node.body if isinstance(node, (ast.Module, ast.ClassDef)) else []
        of_block = ""
        for statement, after in zip(body, [*body[1:], None], strict=False):
            above = statement.lineno - 2
            if above < 0 or not lines[above].strip():
                of_block = ""
            while above >= 0 and lines[above].lstrip().startswith("#"):
                of_block += lines[above]
                above -= 1
            if not is_number(statement):
                continue
            text = "\n".join(lines[statement.lineno - 1 : statement.end_lineno])
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                text += str(after.value.value)
            yield of_block + text


def is_number(statement: ast.stmt) -> bool:
    """True for a name in capitals that is given a number, or a table with some."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or not statement.value:
        return False
    targets = getattr(statement, "targets", None) or [statement.target]  # type: ignore[union-attr]
    return bool(re.fullmatch(r"\(?[A-Z_][A-Z0-9_, ]*\)?", ast.unparse(targets[0]))) and any(
        isinstance(leaf, ast.Constant) and type(leaf.value) in (int, float)
        for leaf in ast.walk(statement.value)
    )


def figures(folder: Path) -> Figures:
    """Figures of every file under `folder`, or of one file; those that are no Python are left."""
    sums = dict.fromkeys(("code_lines", "comment_lines", "docstrings", "paragraphs"), 0)
    files = vague = numbers = sourced = named = 0
    paths: list[int] = []
    for file in [folder] if folder.is_file() else sorted(folder.rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        try:
            tree = ast.parse(source)
        except SyntaxError:
            continue
        files += 1
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
        blank = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        code = {t.start[0] for t in tokens if t.type not in (*blank, tokenize.COMMENT)}
        sums["code_lines"] += len(code)
        sums["comment_lines"] += sum(t.type == tokenize.COMMENT for t in tokens)
        names = [name for _, name in bindings(tree)]
        named, vague = named + len(names), vague + sum(name in VAGUE for name in names)
        for node in ast.walk(tree):
            if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
                sums["docstrings"] += 1
                sums["paragraphs"] += "\n" in text
            if isinstance(node, FUNCTIONS):
                paths.append(complexity(node))
        texts = list(constants(tree, source.splitlines()))
        numbers, sourced = (
            numbers + len(texts),
            sourced + sum(map(bool, map(SOURCED.search, texts))),
        )
    return Figures(
        files=files, bindings=named, vague=vague, complexity=mean(paths or [0]), numbers=numbers,
        sourced=sourced, **sums,
    )  # fmt: skip


def vague_names(file: Path) -> Iterator[str]:
    """`file:line name` of each vague binding."""
    for line, name in bindings(ast.parse(file.read_text(encoding="utf-8"))):
        if name in VAGUE:
            yield f"{file}:{line} {name}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", action="store_true", help="list the vague bindings")
    parser.add_argument("paths", nargs="*", type=Path, default=[Path("advisor")])
    options = parser.parse_args()
    if options.names:
        for path in options.paths:
            for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
                for line in vague_names(file):
                    print(line)
        return
    print("| " + " | ".join(HEADER) + " |")
    print("| --- " * len(HEADER) + "|")
    for path in options.paths:
        print("| " + " | ".join((str(path), *figures(path).row)) + " |")


if __name__ == "__main__":
    main()
