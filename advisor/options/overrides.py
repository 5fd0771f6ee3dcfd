"""Options that are settings written elsewhere: a script's own variables that a command overrides
(`--key=value` into its globals), and the configs that Hydra and OmegaConf compose."""

from __future__ import annotations

import ast
import difflib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from advisor import config as documents
from advisor.errors import AdvisorError
from advisor.options.calls import called, constant, place
from advisor.options.declared import Declared
from advisor.options.source import dotted, single_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from advisor.config import Document
    from advisor.model import JsonScalar
    from advisor.options.source import Module, Project, Unit

MOST_DEEP = 6
"""Configs that name configs."""


# --- a script's own variables -------------------------------------------------------------------


def of_globals(
    project: Project, script: Module, words: Sequence[str], cwd: Path
) -> Iterator[Declared]:
    """The variables of `script` that code it executes overrides by `--key=value`.

    A Python file among `words` is executed the same way, so what it sets counts.
    """
    at = next((n for n, node in enumerate(script.tree.body) if _overrides(project, script, node)),
              None)  # fmt: skip
    if at is None:
        return
    found: dict[str, Declared] = {}
    modules = [(script, script.tree.body[:at])]
    for word in words:
        config = project.module(cwd / word) if word.endswith(".py") else None
        if config is not None:
            modules.append((config, config.tree.body))
    for module, body in modules:
        for node in body:
            option = _variable(module, node)
            if option is not None and (module is script or option.flag in found):
                found[option.flag] = replace(
                    option,
                    comment=option.comment or getattr(found.get(option.flag), "comment", None),
                )
    yield from found.values()


def _variable(module: Module, node: ast.stmt) -> Declared | None:
    name = single_target(node)
    value = getattr(node, "value", None)
    default = constant(module, value)
    if name is None or name.startswith("_") or default is None:
        return None
    return _written_at(module, node, f"--{name}", default)


def _written_at(module: Module, node: ast.AST, flag: str, default: JsonScalar) -> Declared:
    """A setting of the source that one word overrides, with the place where it stands."""
    return Declared(
        flag=flag,
        default=default,
        form="joint",
        source=place(module, node),
        last=True,
        comment=module.comment_behind(node),
    )


def _overrides(project: Project, script: Module, node: ast.stmt) -> bool:
    """Whether a statement executes code that puts the command's words into the globals."""
    for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
        if called(call) != "exec":
            continue
        opened = [n for n in ast.walk(call) if isinstance(n, ast.Call) and called(n) == "open"]
        for each in opened:
            name = constant(script, each.args[0]) if each.args else None
            files = [script.path.parent, *project.roots] if isinstance(name, str) else []
            for folder in files:
                module = project.module(folder / str(name))
                if module is not None and _reads_words_into_globals(module.tree):
                    return True
    return not isinstance(node, (ast.FunctionDef, ast.ClassDef)) and _reads_words_into_globals(node)


def _reads_words_into_globals(tree: ast.AST) -> bool:
    names = {dotted(n) for n in ast.walk(tree) if isinstance(n, (ast.Name, ast.Attribute))}
    return {"sys.argv", "globals"} <= names


# --- a config file of ml_collections ------------------------------------------------------------


def of_config_flags(units: Sequence[Unit], words: Sequence[str], cwd: Path) -> Iterator[Declared]:
    """`DEFINE_config_file("config", "configs/a.py")`: `--config.lr=1` sets what `get_config` of the
    file sets, which `--config=configs/b.py` changes for another."""
    for unit in units:
        for call in unit.every:
            if not isinstance(call, ast.Call) or called(call) != "DEFINE_config_file":
                continue
            given = [constant(unit.module, argument) for argument in call.args[:2]]
            name, default = (*given, None, None)[:2]
            typed = [w.partition("=")[2] for w in words if w.startswith(f"--{name}=")]
            file = typed[-1] if typed else default
            document = _read(cwd / file) if isinstance(file, str) else None
            for option in _settings(document, "", cwd) if document else ():
                function, _, rest = option.flag.partition(".")
                path = rest.partition(".")[2]
                if function == "get_config" and path:
                    yield replace(option, flag=f"--{name}.{path}")


# --- Hydra and OmegaConf ------------------------------------------------------------------------


def of_configs(units: Sequence[Unit], words: Sequence[str], cwd: Path) -> Iterator[Declared]:
    """The settings of the configs that the script composes; `a.b=c` on the command overrides."""
    for unit in units:
        for call in _mains(unit):
            yield from _hydra(unit.module, call, words, cwd)
    calls = {
        called(node): (unit, node)
        for unit in units
        for node in unit.every
        if isinstance(node, ast.Call) and dotted(node.func).startswith("OmegaConf.")
    }
    if "from_cli" in calls and "create" in calls:
        unit, call = calls["create"]
        yield from _written(unit.module, call.args[0] if call.args else None, "")
    if "from_cli" in calls and "load" in calls:
        unit, call = calls["load"]
        name = constant(unit.module, call.args[0]) if call.args else None
        document = _read(cwd / name) if isinstance(name, str) else None
        if document is not None:
            yield from _settings(document, "", cwd)


def _written(module: Module, node: ast.AST | None, above: str) -> Iterator[Declared]:
    """The settings of a dict that stands in the source."""
    if not isinstance(node, ast.Dict):
        return
    for key, value in zip(node.keys, node.values, strict=True):
        name = constant(module, key)
        if not isinstance(name, str):
            continue
        if isinstance(value, ast.Dict):
            yield from _written(module, value, f"{above}{name}.")
        elif (default := constant(module, value)) is not None:
            yield _written_at(module, value, f"{above}{name}", default)


def unknown_keys(units: Sequence[Unit], words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Words that override a key which the composed config lacks, and the known key that is
    nearest, or "". None where a part of the composition cannot be read."""
    mains = {call: unit.module for unit in units for call in _mains(unit)}
    groups = [each for call, module in mains.items() for each in _composition(module, call, words)]
    if len(mains) != 1 or any(map(_brings_configs, words)) or not all(g.found for g in groups):
        return
    beside: dict[str, dict[str, None]] = {}
    """By the path of a mapping, the names in it."""
    for group in groups:
        document = _read(group.path)
        value = document.data if document else None
        for name in reversed(group.package.split(".") if group.package else []):
            value = {name: value}
        for above, name in _nodes(value, ""):
            beside.setdefault(above, {})[name] = None
    folders = {folder.name for group in groups for folder in group.root.glob("*/")}
    for word in words:
        key, sign, _ = word.partition("=")
        above, _, last = key.rpartition(".")
        names = beside.get(above, {})
        is_group = not above and key in folders
        if sign and _KEY.fullmatch(key) and names and last not in names and not is_group:
            near = difflib.get_close_matches(last, names, n=1)
            yield word, ".".join([above, *near]).lstrip(".") if near else ""


_KEY = re.compile(r"(?!hydra\.)[A-Za-z_][\w-]*(\.[\w-]+)*")


def _brings_configs(word: str) -> bool:
    """Whether a word of the command adds a group or a folder of configs."""
    return bool(re.match(r"\+{1,2}[\w/@]+=|--config-dir|-cd", word))


def _nodes(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Every key below `path`: the path of the mapping that it is in, and its name."""
    for name, inside in value.items() if isinstance(value, dict) else ():
        yield path, str(name)
        yield from _nodes(inside, f"{path}.{name}" if path else str(name))


def _mains(unit: Unit) -> Iterator[ast.Call]:
    """The calls of `hydra.main` that decorate a function."""
    for node in unit.every:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and called(decorator) == "main":
                    yield decorator


@dataclass(frozen=True, slots=True)
class _Group:
    """One config of a composition: its file, and where its settings go."""

    root: Path
    path: Path
    package: str
    found: bool = True
    """Else it is no file here, or it is not known which."""


def _hydra(module: Module, call: ast.Call, words: Sequence[str], cwd: Path) -> Iterator[Declared]:
    found: dict[str, Declared] = {}
    for group in _composition(module, call, words):
        document = _read(group.path) if group.found else None
        if document is not None:
            for option in _settings(document, group.package, cwd):
                found[option.flag] = option
    yield from found.values()


def _composition(module: Module, call: ast.Call, words: Sequence[str]) -> Iterator[_Group]:
    said = {word.arg: constant(module, word.value) for word in call.keywords if word.arg}
    said |= dict(zip(("config_path", "config_name"), (constant(module, a) for a in call.args),
                     strict=False))  # fmt: skip
    folder, name = said.get("config_path"), said.get("config_name")
    root = module.path.parent / str(folder or ".")
    for word, value in _flags_of_hydra(words):
        if word in {"-cn", "--config-name"}:
            name = value
        elif word in {"-cp", "--config-path"}:
            root = module.path.parent / value
    if not isinstance(name, str):
        return
    chosen = {
        key.lstrip("+"): value
        for key, sign, value in (word.partition("=") for word in words)
        if sign and re.fullmatch(r"\+{0,2}[\w/@]+", key)
    }
    yield from _composed(root, name.removesuffix(".yaml"), "", chosen, 0)


def _flags_of_hydra(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for number, word in enumerate(words):
        flag, sign, value = word.partition("=")
        if sign:
            yield flag, value
        elif number + 1 < len(words):
            yield word, words[number + 1]


def _composed(
    root: Path, name: str, package: str, chosen: dict[str, str], depth: int
) -> Iterator[_Group]:
    """The configs that `name` stands for, in the order in which they are merged."""
    path = root / f"{name}.yaml"
    document = _read(path)
    if document is None or depth > MOST_DEEP:
        yield _Group(root, path, package, found=False)
        return
    package = _package_of(document, package)
    entries = document.data.get("defaults") if isinstance(document.data, dict) else None
    own_done = False
    for entry in entries if isinstance(entries, list) else []:
        if entry == "_self_":
            own_done = True
            yield _Group(root, path, package)
        elif isinstance(entry, str):
            yield from _composed(root, _beside(name, entry), package, chosen, depth + 1)
        elif isinstance(entry, dict) and len(entry) == 1:
            yield from _chosen(root, name, package, next(iter(entry.items())), chosen, depth)
    if not own_done:
        yield _Group(root, path, package)


def _chosen(
    root: Path,
    name: str,
    package: str,
    entry: tuple[str, object],
    chosen: dict[str, str],
    depth: int,
) -> Iterator[_Group]:
    """What `- data: mnist` brings, or what the command chose in its place."""
    key, option = str(entry[0]).removeprefix("optional "), entry[1]
    group, _, asked = key.partition("@")
    if re.match(r"(override )?/?hydra(/|$)", group):
        return
    option = chosen.get(group.lstrip("/"), option)
    folder = _beside(name, group)
    if group.startswith("override ") or not isinstance(option, str):
        if option is not None:  # of several, or chosen for a config that is merged elsewhere
            yield _Group(root, root / folder, package, found=False)
        return
    if key != entry[0] and not (root / folder / f"{option.removesuffix('.yaml')}.yaml").exists():
        return
    where = asked if asked not in {"_global_", "_here_"} else ""
    where = where or ("" if asked == "_global_" else group.strip("/").replace("/", "."))
    inside = f"{package}.{where}" if package and where else package or where
    file = f"{folder}/{option.removesuffix('.yaml')}"
    yield from _composed(root, file, inside, chosen, depth + 1)


def _beside(name: str, group: str) -> str:
    """A group as seen from the config that names it; one that begins with `/` from the root."""
    folder = name.rpartition("/")[0]
    return group.strip("/") if group.startswith("/") or not folder else f"{folder}/{group}"


def _package_of(document: Document, package: str) -> str:
    """What a comment `# @package _global_` at the top says, else `package`."""
    found = re.match(r"\s*#\s*@package\s+(\S+)", document.raw.decode(errors="replace"))
    if not found or found[1] == "_group_":
        return package
    return "" if found[1] == "_global_" else found[1]


def _read(path: Path) -> Document | None:
    try:
        return documents.read(path)
    except AdvisorError:
        return None


def _settings(document: Document, package: str, cwd: Path) -> Iterator[Declared]:
    """Every single value of a config as an override."""
    path = document.path
    name = path.relative_to(cwd) if path and path.is_relative_to(cwd) else path
    for scalar in document.scalars.values():
        if scalar.path.startswith(("defaults[", "hydra.")) or not re.fullmatch(
            r"[A-Za-z_][\w.]*", scalar.path
        ):
            continue
        line = document.raw.count(b"\n", 0, scalar.span.start) + 1
        yield Declared(
            flag=f"{package}.{scalar.path}" if package else scalar.path,
            default=scalar.value,
            form="joint",
            source=f"{name}:{line}",
            last=True,
            comment=scalar.comment,
            why=scalar.why if scalar.why and "refers" in scalar.why else None,
        )
