"""The house stands: imports point down, there is no cycle, the probe stands alone."""

import ast
import functools
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "advisor"

LAYERS: list[set[str]] = [  # top to bottom; a room may import its own layer and those below
    {"__main__"},
    {"commands", "gate"},
    {"report"},
    {"patches", "tuner", "executor"},
    {"history", "quality"},
    {"runner", "knobs"},
    {"sandbox"},
    {"analysis"},
    {"config", "state", "machine", "stats", "settings", "prediction"},
    {"files", "masking", "numbers", "objective"},
    {"model"},
    {"errors", "clock"},
    {"__init__", "probe"},  # the probe runs where advisor may not be installed
]
LEVEL = {room: depth for depth, rooms in enumerate(LAYERS) for room in rooms}


def modules() -> dict[str, Path]:
    """Dotted name of every module of the package, to its file."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path
    return found


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of the file."""
    return tuple(ast.walk(ast.parse(path.read_text())))


def imports(path: Path, names: dict[str, Path]) -> set[str]:
    """Modules of the package that `path` imports anywhere, inside functions too."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in names:
                    found.add(whole)
                elif node.module in names:
                    found.add(node.module)
        elif isinstance(node, ast.ImportFrom) and node.level:
            if path.parent != PACKAGE / "probe" or node.level > 1:
                pytest.fail(f"{path}: relative import; write it in full")
            # the probe is loaded under another name in the user's process
            found |= {f"advisor.probe.{node.module or alias.name}" for alias in node.names}
    return found


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def test_the_design_lists_every_room_and_no_other() -> None:
    """A room that moved or was pulled down may not stay on the plan."""
    assert {room(name) for name in modules()} == set(LEVEL)


def test_imports_point_down() -> None:
    names = modules()
    wrong = [
        f"{name} -> {target}"
        for name, path in names.items()
        for target in imports(path, names)
        if room(name) != room(target) and LEVEL[room(target)] < LEVEL[room(name)]
    ]
    assert not wrong


def test_a_class_or_type_name_has_one_meaning() -> None:
    """Of public names: who meets one in a room may look it up in any other."""
    places: dict[str, list[str]] = {}
    for module, path in modules().items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            names += [node.name] if isinstance(node, ast.ClassDef) else []
            for name in names:
                if name[0].isupper() and not name.isupper():
                    places.setdefault(name, []).append(module)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_there_is_no_import_cycle() -> None:
    names = modules()
    graph = {name: imports(path, names) - {name} for name, path in names.items()}
    graphlib.TopologicalSorter(graph).prepare()


def test_the_parent_never_imports_torch() -> None:
    """Only the probe may name torch, and only inside functions, after the program imported it."""
    for name, path in modules().items():
        for node in nodes(path):
            named = []
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                named = [node.module or ""]
            if any(part == "torch" or part.startswith("torch.") for part in named):
                assert room(name) == "probe", f"{name} imports torch"


def test_the_command_line_starts_without_torch() -> None:
    code = "import sys, advisor.__main__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


HELPERS = ("tests.fakegpu", "tests.nvml_stub", "tests.support", "tests.simulated_gpu")
"""Programs and simulators that tests and benchmarks share."""


def named_imports(folder: str) -> set[tuple[str, str]]:
    """File and module of each import below `folder`."""
    found = set()
    for path in (PACKAGE.parent / folder).rglob("*.py"):
        if "fixtures" in path.parts:
            continue
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and node.module:
                found |= {(path.name, f"{node.module}.{alias.name}") for alias in node.names}
            elif isinstance(node, ast.Import):
                found |= {(path.name, alias.name) for alias in node.names}
    return found


def test_tests_and_benchmarks_share_only_helpers() -> None:
    imported = named_imports("tests")
    assert not [each for each in imported if each[1].startswith("benchmarks.")]
    wanted = {
        named_import
        for named_import in named_imports("benchmarks")
        if named_import[1].startswith("tests.")
    }
    assert not [each for each in wanted if not each[1].startswith(HELPERS)]


def test_no_two_test_modules_have_one_name() -> None:
    """pytest imports them without packages: the second one of a name is an error."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
