"""Options of a program, recorded from its own parser: they are what it says and hears itself.

Every program here prints its arguments. What was recorded must be what it prints, and what a
changed command sets must be what it then prints.
"""

import json
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from advisor.commands import program_options
from advisor.config import argv, of_command
from tests.support.processes import ran


@dataclass(frozen=True)
class Program:
    """Source, or files; words after `python`; recorded defaults; values to set."""

    source: str | dict[str, str]
    line: str
    defaults: dict[str, Any]
    set: dict[str, Any]
    needs: str = "argparse"


ARGPARSE = """\
import argparse, json
def main():
    parser = argparse.ArgumentParser(description="digits")
    parser.add_argument('--batch-size', type=int, default=64, metavar='N',
                        help='input batch size for training (default: 64)')
    parser.add_argument("-j", "--workers", default="4", type=int)
    parser.add_argument("--lr", default=1e-1, type=float)
    parser.add_argument("data", nargs="*")
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--pin", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--shuffle", type=bool, default=True)
    print(json.dumps(vars(parser.parse_args())))
if __name__ == '__main__':
    main()
"""

SUBCOMMANDS = {
    "main.py": """\
import argparse, json, os
from tool import parts
top = argparse.ArgumentParser()
top.add_argument("--seed", type=int, default=-1)
shared = argparse.ArgumentParser(add_help=False)
shared.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
commands = top.add_subparsers(dest="command", required=True)
train = commands.add_parser("train", parents=[shared])
parts.loader(train)
test = commands.add_parser("test", parents=[shared])
test.add_argument("--test-batch", dest="batch_size", type=int, default=8)
print(json.dumps(vars(top.parse_args())))
""",
    "tool/__init__.py": "",
    "tool/parts.py": """\
import os
def loader(parser):
    group = parser.add_argument_group("loader")
    group.add_argument("--batch-size", type=int, default=len(os.sep) * 32)
    group.add_argument("--num-workers", type=int, default=0, choices=[0, 1, 2])
""",
}

TWICE = """\
import argparse, json
first = argparse.ArgumentParser(add_help=False)
first.add_argument("--model", default="small")
known, rest = first.parse_known_args()
second = argparse.ArgumentParser(parents=[first])
second.add_argument("--batch-size", type=int, default={"small": 32}[known.model])
print(json.dumps(vars(second.parse_args())))
"""

NANO = {
    "train.py": """\
import json
out_dir = 'out'
batch_size = 12 # if gradient_accumulation_steps > 1, this is the micro-batch size
gradient_accumulation_steps = 5 * 8
compile = True
config_keys = [k for k,v in globals().items() if not k.startswith('_')
               and isinstance(v, (int, float, bool, str))]
exec(open('configurator.py').read()) # overrides from command line or config file
print(json.dumps({k: globals()[k] for k in config_keys}))
""",
    "configurator.py": """\
import sys
from ast import literal_eval
for arg in sys.argv[1:]:
    if '=' not in arg:
        exec(open(arg).read())
    else:
        key, val = arg[2:].split('=')
        globals()[key] = literal_eval(val)
""",
    "config/small.py": "# small\nbatch_size = 64\n",
}

CLICK = """\
import json
import click
@click.group()
def cli():
    pass
@cli.command()
@click.option("--batch-size", "-b", default=16, show_default=True, help="per step")
@click.option("--workers", type=click.IntRange(0, 8), default=2)
@click.option("--amp/--no-amp", default=False)
@click.option("--mode", type=click.Choice(["a", "b"]), default="a")
@click.argument("data", required=False)
def fit_model(**said):
    print(json.dumps(said))
cli()
"""

ABSL = """\
import json
from absl import app, flags
flags.DEFINE_integer("batch_size", 128, "Batch size.", lower_bound=1)
flags.DEFINE_bool("use_bf16", False, "Half.")
def main(argv):
    print(json.dumps({"batch_size": flags.FLAGS.batch_size, "use_bf16": flags.FLAGS.use_bf16}))
app.run(main)
"""

TYPER = """\
import json
from enum import Enum
from typing import Literal
import typer
class Precision(str, Enum):
    single = "fp32"
    half = "bf16"
def main(
    batch_size: int = 16,
    workers: int = typer.Option(2, "--num-workers", "-w", help="processes"),
    precision: Precision = Precision.single,
    amp: bool = False,
    mode: Literal["a", "b"] = "a",
):
    found = {"batch_size": batch_size, "num_workers": workers, "amp": amp, "mode": mode}
    print(json.dumps({**found, "precision": precision.value}))
typer.run(main)
"""

HYDRA = {
    "conf/config.yaml": "defaults:\n  - data: mnist\n  - _self_\ntrainer: {amp: false, lr: 0.1}\n",
    "conf/data/mnist.yaml": "batch_size: 32 # per step\nnum_workers: 0\n",
    "conf/data/cifar.yaml": "batch_size: 128\nnum_workers: 4\n",
    "main.py": """\
import json
import hydra
@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(cfg):
    print(json.dumps({f"{a}.{b}": v for a, part in cfg.items() for b, v in part.items()}))
main()
""",
}

OMEGACONF = """\
import json
from omegaconf import OmegaConf
base = OmegaConf.create({"data": {"batch_size": 8, "workers": 2}})
merged = OmegaConf.merge(base, OmegaConf.from_cli())
print(json.dumps({f"data.{key}": value for key, value in merged.data.items()}))
"""

TYRO = """\
import dataclasses, json
import tyro
from typing import Literal

@dataclasses.dataclass
class Data:
    workers: int = 2

@dataclasses.dataclass
class Args:
    batch_size: int = 8
    lr: float = 1e-3
    amp: bool = False
    mode: Literal["a", "b"] = "a"
    data: Data = dataclasses.field(default_factory=Data)

args = tyro.cli(Args)
print(json.dumps({**dataclasses.asdict(args), "data.workers": args.data.workers}))
"""

FIRE = """\
import json
import fire
class Trainer:
    def __init__(self, workers=2):
        self.workers = workers
    def fit(self, data, batch_size=8, *, amp=False):
        print(json.dumps({"batch_size": batch_size, "amp": amp, "workers": self.workers}))
fire.Fire(Trainer)
"""

DRACCUS = """\
import dataclasses, json
import draccus

@dataclasses.dataclass
class Loader:
    workers: int = 2

@dataclasses.dataclass
class Config:
    batch_size: int = 8
    loader: Loader = dataclasses.field(default_factory=Loader)

@draccus.wrap()
def main(config: Config):
    print(json.dumps({**dataclasses.asdict(config), "loader.workers": config.loader.workers}))
main()
"""

SUPPRESSED = """\
import argparse, json
defaults = {"batch_size": 8, "workers": 2}
parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
parser.add_argument("--batch_size", type=int)
parser.add_argument("--workers", type=int)
print(json.dumps({**defaults, **vars(parser.parse_args())}))
"""

OWN_METHOD = """\
import json
from omegaconf import OmegaConf
config = OmegaConf.create({"data": {"batch_size": 8, "workers": 2}})
config.CALL
print(json.dumps({f"data.{key}": value for key, value in config.data.items()}))
"""

DOTLIST = """\
import argparse, json
from omegaconf import OmegaConf
parser = argparse.ArgumentParser()
parser.add_argument("--set", nargs="*", default=[])
parser.add_argument("--seed", type=int, default=0)
said = parser.parse_args()
config = OmegaConf.create({"data": {"batch_size": 8, "workers": 2}})
config.merge_with_dotlist(said.set)
print(json.dumps({f"data.{key}": value for key, value in config.data.items()}))
"""

PYDANTIC = """\
import json
from pydantic import BaseModel
from pydantic_settings import BaseSettings, CliApp

class Data(BaseModel):
    workers: int = 2

class Settings(BaseSettings, cli_kebab_case=True, cli_implicit_flags=True):
    batch_size: int = 8
    amp: bool = False
    data: Data = Data()

settings = CliApp.run(Settings)
print(json.dumps({**settings.model_dump(), "data.workers": settings.data.workers}))
"""

YACS = """\
import argparse, json
from yacs.config import CfgNode
config = CfgNode({"DATA": CfgNode({"BATCH_SIZE": 8, "WORKERS": 2}), "AMP": False, "lr": 0.1})
parser = argparse.ArgumentParser()
parser.add_argument("--name", default="")
parser.add_argument(WORDS)
said = parser.parse_args()
config = config.clone()
config.merge_from_list(said.opts)
print(json.dumps({**config, **{f"DATA.{key}": value for key, value in config.DATA.items()}}))
"""

OPTPARSE = """\
import json, optparse
parser = optparse.OptionParser()
parser.add_option("-b", "--batch-size", type="int", default="8", help="items of a step")
parser.add_option("--workers", type=int, default=2)
parser.add_option("--amp", action="store_true")
parser.add_option("--mode", type="choice", choices=["a", "b"], default="a")
said, rest = parser.parse_args()
print(json.dumps(vars(said)))
"""

GETOPT = """\
import getopt, json, sys
said = {"batch-size": 8, "workers": 2}
for flag, value in getopt.getopt(sys.argv[1:], "q", ["batch-size=", "workers=", "amp"])[0]:
    said[flag[2:]] = int(value or 1)
print(json.dumps({name.replace("-", "_"): value for name, value in said.items()}))
"""

CYCLOPTS = """\
import json
from dataclasses import dataclass
from typing import Literal
import cyclopts

@dataclass
class Data:
    workers: int = 2

app = cyclopts.App()

@app.command
def fit_model(
    data: str = "x", /, batch_size: int = 8, amp: bool = False, mode: Literal["a", "b"] = "a",
    loader: Data = Data(workers=4),
):
    words = {"batch_size": batch_size, "amp": amp, "mode": mode}
    print(json.dumps({**words, "loader.workers": loader.workers}))
app()
"""

DOCOPT = '''\
"""Train.

Usage:
  main.py [options] [--seed=<n>] [<data>]

Options:
  -h --help            Show this.
  -b --batch-size=<n>  Items of a step [default: 8].
  --workers=<n>        Processes [default: 2].
  --amp                Half precision.
"""
import json
import docopt
said = docopt.docopt(__doc__)
print(json.dumps({
    "batch_size": int(said["--batch-size"]), "workers": int(said["--workers"]),
    "seed": said["--seed"], "amp": said["--amp"],
}))
'''

CHZ = """\
import json
import chz

@chz.chz
class Data:
    workers: int = 2

@chz.chz
class Config:
    data: Data
    batch_size: int = 8
    amp: bool = False

def main(config: Config):
    words = {"batch_size": config.batch_size, "amp": config.amp}
    print(json.dumps({**words, "data.workers": config.data.workers}))
chz.nested_entrypoint(main)
"""

SACRED = """\
import json
from sacred import Experiment
experiment = Experiment("x", save_git_info=False)
@experiment.config
def defaults():
    batch_size = 8
    data = {"workers": 2}
@experiment.automain
def main(batch_size, data):
    print(json.dumps({"batch_size": batch_size, "data.workers": data["workers"]}))
"""

GIN = {
    "main.py": """\
import argparse, json
import gin
parser = argparse.ArgumentParser()
parser.add_argument("--config")
parser.add_argument("--set", nargs="*", default=[])
said = parser.parse_args()
@gin.configurable
def run(batch_size=4, workers=0):
    print(json.dumps({"run.batch_size": batch_size, "run.workers": workers}))
gin.parse_config_files_and_bindings([said.config], said.set)
run()
""",
    "train.gin": "run.batch_size = 8\nrun.workers = 0\n",
}

MODULE = {"pkg/__init__.py": "", "pkg/cli.py": ARGPARSE}

PROGRAMS = {
    "argparse": Program(
        ARGPARSE, "main.py folder --lr 0.5",
        {"--batch-size": 64, "--workers": 4, "--lr": 0.5, "--amp": False, "--pin": True},
        {"--batch-size": 128, "--workers": 0, "--lr": 0.25, "--amp": True, "--pin": False},
    ),
    "short and abbreviated flags of a module": Program(
        MODULE, "-u -m pkg.cli -j2 --batch 8 a b",
        {"--batch-size": 8, "--workers": 2, "--amp": False}, {"--batch-size": 16, "--workers": 3},
    ),
    "subcommands, parents, groups": Program(
        SUBCOMMANDS, "main.py --seed 3 train",
        {"--batch-size": 32, "--num-workers": 0, "--precision": "fp32", "--seed": 3},
        {"--batch-size": 64, "--num-workers": 2, "--precision": "bf16", "--seed": 4},
    ),
    "two parsers": Program(
        TWICE, "main.py", {"--model": "small", "--batch-size": 32}, {"--batch-size": 64}
    ),
    "variables that a command overrides": Program(
        NANO, "train.py config/small.py --compile=False",
        {"--batch_size": 64, "--gradient_accumulation_steps": 40, "--compile": False},
        {"--batch_size": 24, "--gradient_accumulation_steps": 20},
    ),
    "click": Program(
        CLICK, "main.py fit-model folder",
        {"--batch-size": 16, "--workers": 2, "--amp": False, "--mode": "a"},
        {"--batch-size": 32, "--workers": 4, "--amp": True}, needs="click",
    ),
    "absl": Program(
        {"absl_train.py": ABSL}, "absl_train.py rest", {"--batch_size": 128, "--use_bf16": False},
        {"--batch_size": 256, "--use_bf16": True}, needs="absl",
    ),
    "typer": Program(
        TYPER, "main.py",
        {"--batch-size": 16, "--num-workers": 2, "--precision": "fp32", "--amp": False,
         "--mode": "a"},
        {"--batch-size": 32, "--num-workers": 4, "--precision": "bf16", "--amp": True},
        needs="typer",
    ),
    "tyro": Program(
        TYRO, "main.py --lr 0.5",
        {"--batch-size": 8, "--lr": 0.5, "--amp": False, "--mode": "a", "--data.workers": 2},
        {"--batch-size": 16, "--lr": 0.25, "--amp": True, "--data.workers": 0}, needs="tyro",
    ),
    "hydra": Program(
        HYDRA, "main.py trainer.lr=0.3 data=cifar",
        {"data.batch_size": 128, "data.num_workers": 4, "trainer.amp": False, "trainer.lr": 0.3},
        {"data.batch_size": 64, "data.num_workers": 2, "trainer.amp": True}, needs="hydra",
    ),
    "omegaconf": Program(
        OMEGACONF, "main.py data.workers=1", {"data.batch_size": 8, "data.workers": 1},
        {"data.batch_size": 64}, needs="omegaconf",
    ),
    "fire": Program(
        FIRE, "main.py fit folder", {"--batch_size": 8, "--amp": False, "--workers": 2},
        {"--batch_size": 16, "--workers": 0}, needs="fire",
    ),
    "draccus": Program(
        DRACCUS, "main.py",
        {"--batch_size": 8, "--loader.workers": 2},
        {"--batch_size": 16, "--loader.workers": 0}, needs="draccus",
    ),
    **{
        f"omegaconf, {call}": Program(
            OWN_METHOD.replace("CALL", call), "main.py data.workers=1",
            {"data.batch_size": 8, "data.workers": 1}, {"data.batch_size": 64}, needs="omegaconf",
        )
        for call in ("merge_with_cli()", "merge_with(OmegaConf.from_cli())")
    },
    "omegaconf, words of a flag": Program(
        DOTLIST, "main.py --set data.workers=1 --seed 3",
        {"data.batch_size": 8, "data.workers": 1}, {"data.batch_size": 64, "data.workers": 0},
        needs="omegaconf",
    ),
    "pydantic_settings": Program(
        PYDANTIC, "main.py --batch-size 4",
        {"--batch-size": 4, "--amp": False, "--data.workers": 2},
        {"--batch-size": 16, "--amp": True, "--data.workers": 0}, needs="pydantic_settings",
    ),
    "yacs": Program(
        YACS.replace("WORDS", '"opts", nargs=argparse.REMAINDER'), "main.py --name x lr 0.5",
        {"DATA.BATCH_SIZE": 8, "DATA.WORKERS": 2, "AMP": False, "lr": 0.5},
        {"DATA.BATCH_SIZE": 16, "AMP": True, "lr": 0.25}, needs="yacs",
    ),
    "yacs, words of a flag": Program(
        YACS.replace("WORDS", '"--opts", nargs="+", default=[]'),
        "main.py --opts DATA.WORKERS 1 --name x",
        {"DATA.BATCH_SIZE": 8, "DATA.WORKERS": 1}, {"DATA.BATCH_SIZE": 16, "DATA.WORKERS": 0},
        needs="yacs",
    ),
    "optparse": Program(
        OPTPARSE, "main.py -b 4 folder",
        {"--batch-size": 4, "--workers": 2, "--amp": False, "--mode": "a"},
        {"--batch-size": 16, "--workers": 0, "--amp": True},
    ),
    "getopt": Program(
        GETOPT, "main.py --batch-size 4", {"--batch-size": 4, "--workers": None, "-q": False},
        {"--batch-size": 16},
    ),
    "cyclopts": Program(
        CYCLOPTS, "main.py fit-model folder --batch-size 4",
        {"--batch-size": 4, "--amp": False, "--mode": "a", "--loader.workers": 4},
        {"--batch-size": 16, "--amp": True, "--loader.workers": 0}, needs="cyclopts",
    ),
    "docopt": Program(
        DOCOPT, "main.py -b 4 folder",
        {"--batch-size": 4, "--workers": 2, "--amp": False, "--seed": None},
        {"--batch-size": 16, "--workers": 0, "--amp": True}, needs="docopt",
    ),
    "chz": Program(
        CHZ, "main.py batch_size=4", {"batch_size": 4, "amp": False, "data.workers": 2},
        {"batch_size": 16, "amp": True, "data.workers": 0}, needs="chz",
    ),
    "sacred": Program(
        SACRED, "main.py with data.workers=1", {"batch_size": 8, "data.workers": 1},
        {"batch_size": 16, "data.workers": 0}, needs="sacred",
    ),
    "gin": Program(
        GIN, "main.py --config train.gin --set run.workers=1",
        {"run.batch_size": 8, "run.workers": 1}, {"run.batch_size": 16, "run.workers": 2},
        needs="gin",
    ),
    "options that leave nothing behind": Program(
        SUPPRESSED, "main.py --workers 3", {"--batch_size": None, "--workers": 3}, {"--workers": 0}
    ),
}  # fmt: skip


def words(command: str) -> tuple[str, ...]:
    first, *rest = shlex.split(command)
    return (sys.executable if first == "python" else first, *rest)


def write(folder: Path, source: str | dict[str, str]) -> None:
    files = {"main.py": source} if isinstance(source, str) else source
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def printed_by(folder: Path, command: tuple[str, ...]) -> dict[str, Any]:
    kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    environment = {**kept, "PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"}
    done = ran(*command, cwd=folder, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


EXTRA = {
    "absl", "chz", "cyclopts", "docopt", "draccus", "fire", "gin", "hydra", "omegaconf",
    "pydantic_settings", "sacred", "typer", "tyro", "yacs",
}  # fmt: skip
CASES = [
    pytest.param(name, marks=pytest.mark.frameworks if program.needs in EXTRA else ())
    for name, program in PROGRAMS.items()
]


@pytest.mark.parametrize("case", CASES)
def test_recorded_options_are_those_of_the_program(tmp_path, case) -> None:
    program = PROGRAMS[case]
    pytest.importorskip(program.needs)
    write(tmp_path, program.source)
    command = words(f"python {program.line}")
    recorded = program_options.record_options(command, tmp_path)
    assert recorded.why_unknown is None
    document = of_command(command, recorded.options)
    assert {f: document.scalars[f].value for f in program.defaults} == program.defaults

    after = printed_by(tmp_path, argv.split(document.with_values(program.set)))
    prints = {flag.lstrip("-").replace("-", "_"): value for flag, value in program.set.items()}
    assert {name: after[name] for name in prints} == prints


def test_the_program_ends_once_its_arguments_are_parsed(tmp_path) -> None:
    """It does not go on; each option has its help, and says if it cannot be set."""
    text = ARGPARSE.replace("    print(", "    import time; args = (").replace(
        "if __name__", "    time.sleep(30)\n    open('trained', 'w').close()\nif __name__"
    )
    write(tmp_path, {"main.py": text})
    command = words("python main.py")
    document = of_command(command, program_options.record_options(command, tmp_path).options)
    assert not (tmp_path / "trained").exists()
    batch = document.scalars["--batch-size"]
    assert batch.comment == "input batch size for training (default: 64)"
    assert not document.scalars["--sizes"].editable
    assert not document.scalars["--shuffle"].editable, "every text is true"


TRAINS = """
import time, torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(5)
raise SystemExit("it went on after its first step")
"""
ANY_NAME = """\
import fire
def main(NAMED**others):
    print(others)
fire.Fire(main)
"""
READS_WORDS = """\
from omegaconf import OmegaConf
print(OmegaConf.from_cli().get("batch_size", 8))
"""
READS_GIN = {
    **GIN,
    "main.py": """\
import sys
import gin
@gin.configurable
def run(batch_size=4, workers=0):
    print(batch_size)
gin.parse_config_file(sys.argv[1], skip_unknown=True)
run()
""",
}
OPTS = YACS.replace("WORDS", '"--opts", nargs="+", default=[]')
UNTOLD = {
    "options of any name": (
        "fire", ANY_NAME.replace("NAMED", ""), (), "takes options of any name",
    ),
    "further options of any name": (
        "fire", ANY_NAME.replace("NAMED", "workers=2, "), ("--workers",),
        "takes options of any name",
    ),
    "words that no config is merged with": (
        "omegaconf", READS_WORDS, (), "merged with no config of OmegaConf",
    ),
    "no words for a config": (
        "yacs", OPTS.replace("config.merge", "said.opts and config.merge"), ("--name", "--opts"),
        "merged with no config of yacs",
    ),
}  # fmt: skip


@pytest.mark.frameworks
@pytest.mark.parametrize("case", UNTOLD)
def test_what_a_parser_does_not_tell_is_said(tmp_path, case) -> None:
    """Options of names that nothing declares are not invented: one sentence says why."""
    library, source, flags, why = UNTOLD[case]
    pytest.importorskip(library)
    write(tmp_path, source)
    recorded = program_options.record_options(words("python main.py"), tmp_path)
    assert tuple(sorted(option.flag for option in recorded.options)) == flags
    said = recorded.untold if flags else recorded.why_unknown
    assert why in (said or "")


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("library", "source", "line", "name", "why"),
    [
        ("yacs", OPTS, "main.py --name x", "DATA.BATCH_SIZE", "it is typed behind --opts"),
        ("sacred", SACRED, "main.py", "batch_size", "it is typed behind `with`"),
        ("gin", GIN, "main.py --config train.gin", "run.batch_size", "it is typed behind --set"),
        ("gin", READS_GIN, "main.py train.gin", "run.batch_size", "gin reads it from a file"),
    ],
)
def test_words_without_a_place_in_the_command_are_told_and_not_added(
    tmp_path, library, source, line, name, why
) -> None:
    """The value is known, and where another one is written is said."""
    pytest.importorskip(library)
    write(tmp_path, source)
    command = words(f"python {line}")
    document = of_command(command, program_options.record_options(command, tmp_path).options)
    batch = document.scalars[name]
    assert batch.value == 8
    assert (batch.why or "").startswith(why)


UNKNOWN = {
    "a script that is not there": ("python gone.py", "leads to no Python file"),
    "a script that does not parse": ("python broken.py", "SyntaxError"),
    "a program without options": ("python silent.py", "parses no arguments"),
    "a program that trains at once": ("python trains.py", "parses no arguments"),
    "a value that the program refuses": ("python main.py --batch-size x", "invalid int value"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_a_program_without_a_record_says_why(tmp_path, case) -> None:
    files = {
        "main.py": ARGPARSE,
        "broken.py": "def (:\n",
        "silent.py": "print(1)\n",
        "trains.py": TRAINS,
    }
    write(tmp_path, files)
    command, why = UNKNOWN[case]
    found = program_options.record_options(words(command), tmp_path)
    assert found.options == ()
    assert why in (found.why_unknown or "")
