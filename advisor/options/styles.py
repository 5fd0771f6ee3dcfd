"""How each library spells the options that it makes of a class's fields."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from advisor.options.calls import called
from advisor.options.source import dotted, single_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.config.options import Form
    from advisor.options.source import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How one library spells the options that it makes."""

    form: Form = "apart"
    truth: Form = "apart"
    """For booleans."""
    dashes: bool = False
    nested: bool = False
    """`--data.batch_size` for a class within a class; else its fields stand beside the others."""
    prefix: str = "--"
    commands: bool = False
    """Functions of a list or a dict, and the methods of a class, are subcommands."""
    own_names: bool = False
    """A flag that is spelled by hand stands in the place of the name, and not beside it."""


PLAIN = Style()
TYRO = Style(dashes=True, nested=True, truth="pair", commands=True)
FIRE = Style(form="joint", truth="joint", commands=True)
JSONARGPARSE = Style(nested=True, commands=True)
PYDANTIC = Style(nested=True)
TYPER = Style(dashes=True, truth="pair", own_names=True)
TAP = Style(truth="bare")
BY_MAKER: dict[str, Style] = {
    "HfArgumentParser": PLAIN,
    "TrlParser": PLAIN,
    "H4ArgumentParser": PLAIN,
    "ArgumentParser": PLAIN,
    "add_arguments": PLAIN,
    "simple_parsing.parse": PLAIN,
    "tyro.cli": TYRO,
    "subcommand_cli_from_dict": TYRO,
    "CliApp.run": PYDANTIC,
    "pyrallis.parse": Style(nested=True),
    "pyrallis.wrap": Style(nested=True),
    "draccus.parse": Style(nested=True),
    "draccus.wrap": Style(nested=True),
    "fire.Fire": FIRE,
    "Fire": FIRE,
    "typer.run": TYPER,
    "jsonargparse.CLI": JSONARGPARSE,
    "auto_cli": JSONARGPARSE,
    "CLI": JSONARGPARSE,
    "OmegaConf.structured": Style(form="joint", truth="joint", nested=True, prefix=""),
    "store": Style(form="joint", truth="joint", nested=True, prefix=""),
}
"""By what is called with a class or a function. `store` is Hydra's ConfigStore."""


def of_class(units: Sequence[Unit], node: ast.ClassDef) -> Style | None:
    """That of a class which by its base alone, or as it is set up, reads the command."""
    bases = {dotted(base).rpartition(".")[2] for base in node.bases}
    if not bases & {"Tap", "BaseSettings"}:
        return None
    said = [*node.keywords]
    for each in node.body:
        if single_target(each) == "model_config" and isinstance(each, ast.Assign):
            said += each.value.keywords if isinstance(each.value, ast.Call) else []
    for unit in units:
        for call in unit.every:
            if isinstance(call, ast.Call) and called(call) == node.name:
                said += call.keywords
    on = {
        word.arg.lstrip("_")
        for word in said
        if word.arg and not (isinstance(word.value, ast.Constant) and not word.value.value)
    }
    if "Tap" in bases:
        return replace(TAP, dashes="underscores_to_dashes" in on)
    if "cli_parse_args" not in on:
        return None
    truth: Form = "pair" if "cli_implicit_flags" in on else "apart"
    return replace(PYDANTIC, dashes="cli_kebab_case" in on, truth=truth)
