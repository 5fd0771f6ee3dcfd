"""Python source edited by tree positions, with a diff.

The edited source is parsed again and must be the tree that was meant, so that everything else
stays as it was written. Files themselves are only read.
"""

from __future__ import annotations

import ast
import difflib
import io
import tokenize
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Node = TypeVar("Node", bound=ast.AST)

BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Bytes of a Python file, without BOM, and its tree."""

    path: Path
    code: bytes
    tree: ast.Module
    bom: bytes

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

    @property
    def newline(self) -> bytes:
        """The file's own line end."""
        return b"\r\n" if b"\r\n" in self.code else b"\n"


Splice = tuple[int, int, bytes]
"""Byte range of the code, and what replaces it."""
Edit = Callable[[Source], list[Splice] | None]
"""Changes the tree of a source, and says where the code changes alike; None where it cannot. What
it puts into the tree is `added`, so that an edit after it finds everything where it was."""


def read_source(path: Path) -> Source | None:
    """Read a UTF-8 Python source, or return None.

    Line ends must be modern.
    """
    try:
        raw = path.read_bytes()
        code = raw.removeprefix(BOM)
        text = code.decode("utf-8")
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        tree = ast.parse(code)
    except (OSError, ValueError, SyntaxError):
        return None
    if encoding not in {"utf-8", "utf-8-sig"} or "\r" in text.replace("\r\n", "") or "\f" in text:
        return None
    return Source(path=path, code=code, tree=tree, bom=raw[: len(raw) - len(code)])


def last_name(node: ast.expr) -> str | None:
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
    """Imports at a module's top, after its docstring.

    Those that an edit added are left out.
    """
    body = tree.body
    start = 1 if body and ast.get_docstring(tree, clean=False) is not None else 0
    block: list[ast.stmt] = []
    for node in body[start:]:
        if not isinstance(node, (ast.Import, ast.ImportFrom)) or not node.lineno:
            break
        block.append(node)
    return block


def behind(source: Source, node: ast.stmt) -> int | None:
    """Offset behind the last line of `node`.

    None where it shares that line.
    """
    assert node.end_lineno is not None
    index = source.tree.body.index(node)
    shared = [n for n in source.tree.body[index + 1 :] if 0 < n.lineno <= node.end_lineno]
    at = source.offset(node.end_lineno + 1, 0)
    if at > len(source.code) or shared:
        return None
    return at - 1 - (source.code[at - 2 : at] == b"\r\n")


def added(node: Node) -> Node:
    """Move `node` to line 0, which no edit finds."""
    for part in ast.walk(node):
        if isinstance(part, (ast.expr, ast.stmt, ast.keyword)):
            part.lineno = part.end_lineno = part.col_offset = part.end_col_offset = 0
    return node


# --- proving and writing ------------------------------------------------------------------


def patch_of(path: Path, cwd: Path, *edits: Edit) -> str | None:
    """Unified diff of `edits` that `git apply` accepts.

    It applies at the root of the repository, or in `cwd` where there is none. None if one of them
    cannot be made.
    """
    source = read_source(path)
    if source is None:
        return None
    splices: list[Splice] = []
    for edit in edits:
        found = edit(source)
        if found is None:
            return None
        splices += found
    return _as_patch(source, splices, cwd)


def _as_patch(source: Source, splices: list[Splice], cwd: Path) -> str | None:
    """Diff, if the edited code parses as intended."""
    new = source.code
    for start, end, text in sorted(splices, key=lambda splice: splice[:2], reverse=True):
        new = new[:start] + text + new[end:]
    try:
        if ast.dump(ast.parse(new)) != ast.dump(source.tree):
            return None
    except (SyntaxError, ValueError):
        return None
    old, new = source.bom + source.code, source.bom + new
    return file_patch(source.path, old, new, cwd)


def file_patch(path: Path, old: bytes, new: bytes, cwd: Path) -> str | None:
    """Rewrite of a whole file; None if unchanged."""
    return None if old == new else _unified(old, new, _shown(path, cwd))


def _shown(path: Path, cwd: Path) -> str:
    """Path relative to the repository, or to `cwd`."""
    real = path.resolve()
    for folder in real.parents:
        if (folder / ".git").exists():
            return real.relative_to(folder).as_posix()
    here = cwd.resolve()
    return real.relative_to(here).as_posix() if real.is_relative_to(here) else real.as_posix()


def _unified(old: bytes, new: bytes, name: str) -> str:
    """Diff in git's format, with the file's line ends."""
    before, after = ([f"{line}\n" for line in side.decode().split("\n")] for side in (old, new))
    for side in (before, after):  # what stands behind the last line end
        side[-1] = side[-1][:-1]
        if not side[-1]:
            side.pop()
    lines = [f"diff --git a/{name} b/{name}\n"]
    for line in difflib.unified_diff(before, after, f"a/{name}", f"b/{name}"):
        whole = line.endswith("\n")
        lines.append(line if whole else f"{line}\n\\ No newline at end of file\n")
    return "".join(lines)
