"""A measured 0 is a figure, and what was not measured is None: `or` takes one for the other."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "advisor"
RECORDS = ("model/runs.py", "report/schema.py", "gate/schema.py")
"""Modules whose classes hold what was measured."""
NEVER_ZERO = {"accumulation", "batch", "forwards_per_unit", "group_batch", "threshold"}
"""Counts of what was seen to happen, and shares that must lie above 0."""


def facts() -> set[str]:
    """Names of fields that are a measured number, or None."""
    trees = [ast.parse((PACKAGE / name).read_text(encoding="utf-8")) for name in RECORDS]
    fields = [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.AnnAssign)]
    return {
        field.target.id
        for field in fields
        if isinstance(field.target, ast.Name) and ast.unparse(field.annotation) == "float | None"
    }


def taken_for_none(path: Path, names: set[str]) -> Iterator[str]:
    """Places at which something else stands for a fact that is 0; for a 0 that is the same."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.BoolOp) or not isinstance(node.op, ast.Or):
            continue
        *firsts, last = node.values
        is_zero = isinstance(last, ast.Constant) and not last.value
        for first in firsts:
            if isinstance(first, ast.Attribute) and first.attr in names and not is_zero:
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}: {ast.unparse(node)}"


def test_nothing_stands_for_a_measured_zero() -> None:
    """A card at work for 0 % of a run was measured: its figure is 0, not the next one's."""
    names = facts() - NEVER_ZERO
    assert {"wait_share", "peak_device_gib", "gpu_util_pct", "sm_clock_spread_pct"} <= names
    assert not [found for path in PACKAGE.rglob("*.py") for found in taken_for_none(path, names)]
