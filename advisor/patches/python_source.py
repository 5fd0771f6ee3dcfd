"""Python source edited by tree positions, with a diff.

The edited source is parsed again and must be the tree that was meant, so that everything else
stays as it was written. Files themselves are only read.
"""

import ast
import difflib
import io
import itertools
import re
import tokenize
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

LINES = re.compile(r"[^\n]*\n|[^\n]+")
IMPORTS = (ast.Import, ast.ImportFrom)
NO_LINE_END = "\\ No newline at end of file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Bytes of a Python file and its tree."""

    code: bytes
    tree: ast.Module

    def offset(self, line: int, column: int) -> int:
        """Byte offset of a position: lines from 1."""
        lines = self.code.split(b"\n")
        return sum(len(text) + 1 for text in lines[: line - 1]) + column

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Byte range of a node."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.offset(node.lineno, node.col_offset),
            self.offset(node.end_lineno, node.end_col_offset),
        )

    def indent(self, node: ast.stmt) -> tuple[int, bytes]:
        """Start of a node's line, and the text before the node."""
        start, _ = self.span(node)
        first = self.code.rfind(b"\n", 0, start) + 1
        return first, self.code[first:start]

    @property
    def newline(self) -> bytes:
        """The file's own line end."""
        return b"\r\n" if b"\r\n" in self.code else b"\n"


Splice = tuple[int, int, bytes]
"""Byte range of the code, and what replaces it."""
Edit = Callable[[Source], list[Splice] | None]
"""Changes the tree of a source, and says where the code changes alike; None where it cannot."""


def read_source(path: Path) -> Source | None:
    """Read a UTF-8 source without BOM or old line ends, else None."""
    try:
        code = path.read_bytes()
        text = code.decode("utf-8")
        encoding, _ = tokenize.detect_encoding(io.BytesIO(code).readline)
        tree = ast.parse(code)
    except (OSError, ValueError, SyntaxError):
        return None
    if encoding != "utf-8" or "\r" in text.replace("\r\n", "") or "\f" in text:
        return None
    return Source(code=code, tree=tree)


def last_name(node: ast.expr) -> str | None:
    """Last word of a name or an attribute."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def imports_torch(statements: Sequence[ast.stmt]) -> bool:
    """True if one of `statements` imports torch under its own name."""
    return any(
        isinstance(node, ast.Import)
        and any(alias.name.split(".")[0] == "torch" and not alias.asname for alias in node.names)
        for node in statements
    )


def leading_imports(tree: ast.Module) -> list[ast.stmt]:
    """Imports at a module's top, after its docstring."""
    body = tree.body
    start = 1 if body and ast.get_docstring(tree, clean=False) is not None else 0
    return list(itertools.takewhile(lambda node: isinstance(node, IMPORTS), body[start:]))


def behind(source: Source, node: ast.stmt) -> int | None:
    """Offset of the end of a node's last line; None if it is shared."""
    _, end = source.span(node)
    rest, newline, _ = source.code[end:].partition(b"\n")
    if not newline or (rest.strip() and not rest.strip().startswith(b"#")):
        return None
    return end + len(rest.removesuffix(b"\r"))


def patch_of(path: Path, cwd: Path, edit: Edit) -> str | None:
    """Diff of `edit` for `git apply`; None if the edited code is not what was meant."""
    source = read_source(path)
    splices = edit(source) if source else None
    if source is None or splices is None:
        return None
    new = source.code
    for start, end, text in sorted(splices, key=lambda splice: splice[:2], reverse=True):
        new = new[:start] + text + new[end:]
    try:
        if ast.dump(ast.parse(new)) != ast.dump(source.tree):
            return None
    except (SyntaxError, ValueError):
        return None
    return file_patch(path, source.code, new, cwd)


def file_patch(path: Path, old: bytes, new: bytes, cwd: Path) -> str | None:
    """Diff of a whole file in git's format; None if unchanged."""
    if old == new:
        return None
    name = _shown(path, cwd)
    before, after = (LINES.findall(side.decode()) for side in (old, new))
    lines = difflib.unified_diff(before, after, f"a/{name}", f"b/{name}")
    whole = (each if each.endswith("\n") else f"{each}\n{NO_LINE_END}\n" for each in lines)
    return "".join((f"diff --git a/{name} b/{name}\n", *whole))


def _shown(path: Path, cwd: Path) -> str:
    """Path relative to the repository, or to `cwd`."""
    real, here = path.resolve(), cwd.resolve()
    folders = [folder for folder in real.parents if (folder / ".git").exists()]
    root = folders[0] if folders else here
    return real.relative_to(root).as_posix() if real.is_relative_to(root) else real.as_posix()
