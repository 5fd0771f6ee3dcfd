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
        ABSL, "main.py rest", {"--batch_size": 128, "--use_bf16": False},
        {"--batch_size": 256, "--use_bf16": True}, needs="absl",
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


EXTRA = {"absl", "draccus", "fire", "hydra", "omegaconf", "tyro"}
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
