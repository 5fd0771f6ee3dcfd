"""Python source edited by tree positions, with a diff.

The edited source is parsed again and must be the tree that was meant, so that everything else
stays as it was written. Files themselves are only read.
"""

import ast
import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.config.leaves import Splice, spliced
from advisor.config.python import Places

LINES = re.compile(r"[^\n]*\n|[^\n]+")
NO_LINE_END = "\\ No newline at end of file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Text of a Python file, its tree, and the places of the tree as it was read."""

    code: str
    tree: ast.Module
    places: Places

    def indent(self, node: ast.stmt) -> tuple[int, str]:
        """Start of a node's line, and the text before the node."""
        start, _ = self.places.span(node)
        first = self.code.rfind("\n", 0, start) + 1
        return first, self.code[first:start]

    @property
    def newline(self) -> str:
        """The file's own line end."""
        return "\r\n" if "\r\n" in self.code else "\n"


Edit = Callable[[Source], list[Splice] | None]
"""Changes the tree of a source, and says where the code changes alike; None where it cannot."""


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


def behind(source: Source, node: ast.stmt) -> int | None:
    """Offset of the end of a node's last line; None if it is shared."""
    _, end = source.places.span(node)
    rest = source.code[end:].partition("\n")[0]
    if rest.strip() and not rest.strip().startswith("#"):
        return None
    return end + len(rest.removesuffix("\r"))


def patch_of(path: Path, cwd: Path, edit: Edit) -> str | None:
    """Diff of `edit` for `git apply`; None if the edited code is not what was meant."""
    try:
        old = path.read_bytes().decode()
        source = Source(code=old, tree=ast.parse(old), places=Places(old))
        splices = edit(source)
        new = spliced(old, splices or [])
        is_meant = ast.dump(ast.parse(new)) == ast.dump(source.tree)
    except (OSError, ValueError, SyntaxError):  # a byte order mark, too
        return None
    return file_patch(path, old, new, cwd) if is_meant else None


def file_patch(path: Path, old: str, new: str, cwd: Path) -> str | None:
    """Diff of a file in git's format, from its repository or `cwd`; None if unchanged."""
    if old == new:
        return None
    real = path.resolve()
    root = next((each for each in real.parents if (each / ".git").exists()), cwd.resolve())
    name = real.relative_to(root).as_posix() if real.is_relative_to(root) else real.as_posix()
    lines = difflib.unified_diff(LINES.findall(old), LINES.findall(new), f"a/{name}", f"b/{name}")
    whole = (each if each.endswith("\n") else f"{each}\n{NO_LINE_END}\n" for each in lines)
    return "".join((f"diff --git a/{name} b/{name}\n", *whole))
