"""Options made of functions, classes and usage texts: what is typed for them, as their libraries
take it. Each tuned command was given to the library itself when this table was written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from advisor import options
from advisor.config import of_command, split_command

if TYPE_CHECKING:
    from pathlib import Path

TYPER = "import typer\nfrom typing import Annotated\n"
FIRE = "import fire\n"
APP = """\
class App:
    def __init__(self, workers=4): ...
    def train_on(self, batch_size=8): ...
    def test(self, batch_size=1): ...
"""
DATA = "from dataclasses import dataclass\n"
PYDANTIC = "from pydantic import BaseModel, Field\nfrom pydantic_settings import *\n"
TAP = "from tap import Tap\n"
DEFAULTS = {"workers": 4, "j": 4, "amp": False}
"""What the programs take by themselves; 8 for everything else."""


@dataclass(frozen=True)
class Program:
    """A source, the program's own words, what is set, and the words that then stand."""

    text: str
    own: str
    set: dict[str, Any]
    tuned: str


PROGRAMS = {
    "flags spelled by hand replace the name": Program(
        TYPER + "def main(batch_size: int = typer.Option(8, '-b', '--bs'),\n"
        " jobs: Annotated[int, typer.Option('-j')] = 4,\n"
        " amp: Annotated[bool, typer.Option('--amp')] = False): ...\n"
        "typer.run(main)\n",
        "",
        {"--bs": 16, "-j": 2, "--amp": True},
        "--bs 16 -j 2 --amp",
    ),
    "one command behind a callback": Program(
        TYPER + "app = typer.Typer()\n@app.callback()\ndef main(workers: int = 4): ...\n"
        "@app.command()\ndef train(batch_size: int = 8): ...\napp()\n",
        "train",
        {"--workers": 2, "--batch-size": 16},
        "--workers 2 train --batch-size 16",
    ),
    "methods are commands": Program(
        FIRE + APP + "fire.Fire(App)\n",
        "train_on",
        {"--workers": 2, "--batch_size": 16},
        "--workers=2 train_on --batch_size=16",
    ),
    "a dict of commands": Program(
        FIRE + "def a(batch_size=8): ...\ndef b(batch_size=1): ...\n"
        "fire.Fire({'train': a, 'test': b})\n",
        "train",
        {"--batch_size": 16},
        "train --batch_size=16",
    ),
    "every function of the file": Program(
        FIRE + "def train(batch_size=8): ...\ndef test(batch_size=1): ...\nfire.Fire()\n",
        "train",
        {"--batch_size": 16},
        "train --batch_size=16",
    ),
    "a list of commands": Program(
        "from jsonargparse import CLI\ndef train(batch_size: int = 8): ...\n"
        "def test(batch_size: int = 1): ...\nCLI([train, test])\n",
        "train",
        {"--batch_size": 16},
        "train --batch_size 16",
    ),
    "another name for a field": Program(
        DATA + "import tyro\nfrom typing import Annotated\n@dataclass\nclass Main:\n"
        " batch_size: Annotated[int, tyro.conf.arg(name='bs')] = 8\ntyro.cli(Main)\n",
        "",
        {"--bs": 16},
        "--bs 16",
    ),
    "a class within a class, its prefix left out": Program(
        DATA + "import tyro\n@dataclass\nclass Data:\n batch_size: int = 8\n"
        "@dataclass\nclass Main:\n data: tyro.conf.OmitArgPrefixes[Data]\ntyro.cli(Main)\n",
        "",
        {"--batch-size": 16},
        "--batch-size 16",
    ),
    "settings that read the command": Program(
        PYDANTIC + "class Data(BaseModel):\n batch_size: int = Field(8, ge=1)\n"
        "class All(BaseSettings, cli_parse_args=True, cli_kebab_case=True):\n"
        " data: Data = Data()\n workers: int = 4\nAll()\n",
        "",
        {"--data.batch-size": 16, "--workers": 2},
        "--data.batch-size 16 --workers 2",
    ),
    "settings that are told to": Program(
        PYDANTIC + "class All(BaseSettings):\n"
        " model_config = SettingsConfigDict(cli_parse_args=True)\n workers: int = 4\nAll()\n",
        "",
        {"--workers": 2},
        "--workers 2",
    ),
    "fields whose underscores are dashes": Program(
        TAP + "class Args(Tap):\n batch_size: int = 8\nArgs(underscores_to_dashes=True)\n",
        "",
        {"--batch-size": 16},
        "--batch-size 16",
    ),
    "a field that is configured again": Program(
        TAP + "class Args(Tap):\n batch_size: int = 8\n def configure(self):\n"
        "  self.add_argument('-b', '--batch_size')\nArgs().parse_args()\n",
        "",
        {"--batch_size": 16},
        "--batch_size 16",
    ),
    "a dict that the command is merged into": Program(
        "from omegaconf import OmegaConf\nc = OmegaConf.create({'data': {'workers': 4}})\n"
        "c = OmegaConf.merge(c, OmegaConf.from_cli())\n",
        "",
        {"data.workers": 2},
        "data.workers=2",
    ),
    "a usage text": Program(
        '"""Train.\n\nUsage: main.py [options]\n\nOptions:\n'
        '  -b <n>, --batch-size=<n>  items [default: 8]\n"""\n'
        "from docopt import docopt\ndocopt(__doc__)\n",
        "",
        {"--batch-size": 16},
        "--batch-size 16",
    ),
    "other names for adding": Program(
        "import argparse, functools\np = argparse.ArgumentParser()\nadd = p.add_argument\n"
        "whole = functools.partial(p.add_argument, type=int)\n"
        "add('--batch', type=int, default=8)\nwhole('--workers', default='4')\np.parse_args()\n",
        "",
        {"--batch": 16, "--workers": 2},
        "--batch 16 --workers 2",
    ),
    "a parser that only adds": Program(
        "import configargparse\np = configargparse.ArgParser()\n"
        "p.add('--batch', type=int, default=8)\np.parse_args()\n",
        "",
        {"--batch": 16},
        "--batch 16",
    ),
    "a decorator of the program's own": Program(
        "import click\ndef loader(f):\n return click.option('--workers', default=4)(f)\n"
        "@click.command()\n@loader\n@click.option('--batch', default=8)\n"
        "def main(batch, workers): ...\nmain()\n",
        "",
        {"--batch": 16, "--workers": 2},
        "--batch 16 --workers 2",
    ),
}


def options_of(text: str, own: str, folder: Path) -> Any:
    (folder / "main.py").write_text(text)
    command = ("python", "main.py", *own.split())
    return of_command(command, options.of_command(command, folder))


@pytest.mark.parametrize("case", PROGRAMS)
def test_what_is_added_is_what_the_library_takes(tmp_path: Path, case: str) -> None:
    program = PROGRAMS[case]
    document = options_of(program.text, program.own, tmp_path)
    assert {flag: document.scalars[flag].value for flag in program.set} == {
        flag: DEFAULTS.get(flag.rpartition(".")[2].strip("-"), 8) for flag in program.set
    }
    tuned = split_command(document.with_values(program.set))
    assert sorted(" ".join(tuned[2:]).split()) == sorted(program.tuned.split())
    for word in program.own.split():
        behind = program.tuned.split()[program.tuned.split().index(word) :]
        assert sorted(tuned[tuned.index(word) :]) == sorted(behind)


NOT_THERE = {
    "a positional word": (
        TYPER + "def main(batch_size: int = typer.Argument(8)): ...\ntyper.run(main)\n",
        "",
    ),
    "settings that read no command": (
        PYDANTIC + "class All(BaseSettings):\n batch_size: int = 8\nAll()\n",
        "",
    ),
    "what made an object that is handed over": (
        FIRE + "class App:\n def __init__(self, batch_size=8): ...\n def train(self): ...\n"
        "fire.Fire(App())\n",
        "train",
    ),
    "another command's": (FIRE + APP + "fire.Fire(App)\n", "run"),
}


@pytest.mark.parametrize("case", NOT_THERE)
def test_what_cannot_be_typed_is_no_option(tmp_path: Path, case: str) -> None:
    scalars = options_of(*NOT_THERE[case], tmp_path).scalars
    assert not [flag for flag in scalars if "batch" in flag]
