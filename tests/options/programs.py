"""Programs such as people have, each with options that nobody typed.

Every program here prints what it was told. Libraries that tests do not install have stand-ins in
`libraries.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.options import libraries

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Program:
    """Files, a command, the knobs with their own values, and what is set."""

    files: dict[str, str]
    command: str
    defaults: dict[str, Any]
    set: dict[str, Any]
    hears: dict[str, Any] = field(default_factory=dict)


def write(folder: Path, files: dict[str, str]) -> None:
    """Write a program's files, by their paths in `folder`."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


ARGPARSE = """\
import argparse, json
raise_if_imported = 1
def main():
    parser = argparse.ArgumentParser(description="digits")
    parser.add_argument('--batch-size', type=int, default=64, metavar='N',
                        help='input batch size for training (default: 64)')
    parser.add_argument("-j", "--workers", default="4", type=int)
    parser.add_argument("--lr", default=1e-1, type=float)
    parser.add_argument("data", nargs="*")
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--pin", action=argparse.BooleanOptionalAction, default=True)
    print(json.dumps(vars(parser.parse_args())))
if __name__ == '__main__':
    main()
"""

SUBCOMMANDS = {
    "main.py": """\
import argparse, json
from tool import parts
def train_options(p):
    p.add_argument("--epochs", type=int, default=3)
    parts.loader(p)
top = argparse.ArgumentParser()
top.add_argument("--seed", type=int, default=-1)
shared = argparse.ArgumentParser(add_help=False)
shared.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
commands = top.add_subparsers(dest="command", required=True)
train = commands.add_parser("train", parents=[shared])
train_options(train)
test = commands.add_parser("test", parents=[shared])
test.add_argument("--test-batch", dest="batch_size", type=int, default=8)
print(json.dumps(vars(top.parse_args())))
""",
    "tool/__init__.py": "",
    "tool/parts.py": """\
DEFAULT = 2 ** 5
def loader(parser):
    group = parser.add_argument_group("loader")
    group.add_argument("--batch-size", type=int, default=DEFAULT)
    group.add_argument("--num-workers", type=int, default=0, choices=range(3))
def never_called(parser):
    parser.add_argument("--unused-workers", default=7)
if __name__ == "__main__":
    never_called(None)
""",
}

DATACLASSES = libraries.TRANSFORMERS | {
    "run_clm.py": """\
from __future__ import annotations
import json
from dataclasses import dataclass, field
from transformers import HfArgumentParser, TrainingArguments
@dataclass
class ModelArguments:
    block_size: int = field(default=1024, metadata={"help": "tokens"})
@dataclass
class OwnTrainingArguments(TrainingArguments):
    dataloader_num_workers: int = 2  # more than theirs
def main():
    parser = HfArgumentParser((ModelArguments, OwnTrainingArguments))
    print(json.dumps(vars(parser.parse_args())))
main()
""",
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
@cli.command(name="score")
@click.option("--batch-size", default=99)
def other(**said):
    print(json.dumps(said))
cli()
"""

ABSL = libraries.ABSL | {
    "train.py": """\
import json
from absl import flags
flags.DEFINE_integer("batch_size", 128, "Batch size.", lower_bound=1)
flags.DEFINE_integer(name="num_workers", default=1, help="Loader processes.")
flags.DEFINE_bool("use_bf16", False, "Half.")
if __name__ == "__main__":
    print(json.dumps(flags.parse()))
""",
}

NANO = {
    "train.py": """\
# a header
import json
out_dir = 'out'
batch_size = 12 # if gradient_accumulation_steps > 1, this is the micro-batch size
gradient_accumulation_steps = 5 * 8 # used to simulate larger batch sizes
block_size = 1024
learning_rate = 6e-4
compile = True
dtype = 'float32'
config_keys = [k for k,v in globals().items() if not k.startswith('_')
               and isinstance(v, (int, float, bool, str))]
exec(open('configurator.py').read()) # overrides from command line or config file
config = {k: globals()[k] for k in config_keys}
tokens = batch_size * block_size
print(json.dumps(config))
""",
    "configurator.py": """\
import sys
from ast import literal_eval
for arg in sys.argv[1:]:
    if '=' not in arg:
        assert not arg.startswith('--')
        exec(open(arg).read())
    else:
        assert arg.startswith('--')
        key, val = arg.split('=')
        key = key[2:]
        if key in globals():
            try:
                attempt = literal_eval(val)
            except (SyntaxError, ValueError):
                attempt = val
            assert type(attempt) == type(globals()[key])
            globals()[key] = attempt
        else:
            raise ValueError(f"Unknown config key: {key}")
""",
    "config/small.py": "# small\nbatch_size = 64\ncompile = False\n",
}

HYDRA = libraries.HYDRA | {
    "conf/config.yaml": """\
defaults:
  - data: mnist
  - _self_
trainer:
  lr: 0.1
  amp: false
data:
  root: ./d
""",
    "conf/data/mnist.yaml": "batch_size: 32 # per step\nnum_workers: 0\n",
    "conf/data/cifar.yaml": "batch_size: 128\nnum_workers: 4\n",
    "main.py": """\
import json
import hydra
@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(cfg):
    flat = {f"{a}.{b}": v for a, part in cfg.items() for b, v in part.items()}
    print(json.dumps(flat))
if __name__ == "__main__":
    main()
""",
}

OPTPARSE = """\
import json
from optparse import OptionParser
parser = OptionParser()
parser.add_option("-b", "--batch", type="int", default=4, help="samples")
parser.add_option("--fast", action="store_true", default=False)
print(json.dumps(vars(parser.parse_args()[0])))
"""

INHERITED = {
    "train.py": """\
from options.train_options import TrainOptions
if __name__ == "__main__":
    print(TrainOptions().parse())
""",
    "options/__init__.py": "",
    "options/base.py": """\
import argparse, json
class BaseOptions:
    def initialize(self, parser):
        parser.add_argument('--batch_size', type=int, default=1, help='input batch size')
        parser.add_argument('--num_threads', default=4, type=int)
        return parser
    def parse(self):
        parser = argparse.ArgumentParser()
        parser = self.initialize(parser)
        return json.dumps(vars(parser.parse_args()))
""",
    "options/train_options.py": """\
from .base import BaseOptions
class TrainOptions(BaseOptions):
    def initialize(self, parser):
        parser = BaseOptions.initialize(self, parser)
        parser.add_argument('--n_epochs', type=int, default=100)
        parser.set_defaults(num_threads=6)
        return parser
""",
}

LIGHTNING = libraries.LIGHTNING | {
    "data.py": """\
import lightning as L
class Data(L.LightningDataModule):
    def __init__(self, batch_size: int = 32, num_workers: int = 0, pin: bool = False):
        self.size = batch_size
""",
    "main.py": """\
import lightning as L
from data import Data
class Model(L.LightningModule):
    def __init__(self, lr: float = 1e-3):
        pass
if __name__ == "__main__":
    L.LightningCLI(Model, Data)
""",
}

CONFIG_FLAGS = libraries.ML_COLLECTIONS | {
    "configs/small.py": """\
import ml_collections
def get_config():
    config = ml_collections.ConfigDict()
    config.batch_size = 512
    config.data = ml_collections.ConfigDict()
    config.data.num_workers = 2  # a process each
    config.steps = 4 * config.batch_size
    return config
""",
    "main.py": """\
from ml_collections import config_flags
config_flags.DEFINE_config_file("config", "configs/other.py")
""",
}

PROGRAMS = {
    "LightningCLI": Program(
        LIGHTNING,
        "python main.py fit --trainer.max_epochs 1",
        {"--data.batch_size": 32, "--data.num_workers": 0, "--data.pin": False},
        {"--data.batch_size": 64, "--model.lr": 0.5, "--data.pin": True},
    ),
    "a config file of flags": Program(
        CONFIG_FLAGS,
        "python main.py --config=configs/small.py",
        {"--config.batch_size": 512, "--config.data.num_workers": 2},
        {"--config.batch_size": 1024},
    ),
    "argparse": Program(
        {"main.py": ARGPARSE},
        "python main.py folder --lr 0.5",
        {"--batch-size": 64, "--workers": 4, "--lr": 0.5, "--amp": False, "--pin": True},
        {"--batch-size": 128, "--workers": 0, "--lr": 0.25, "--amp": True, "--pin": False},
    ),
    "argparse, short and abbreviated flags": Program(
        {"main.py": ARGPARSE},
        "python main.py -j2 --batch 8 a b",
        {"--batch-size": 8, "--workers": 2, "--amp": False},
        {"--batch-size": 16, "--workers": 3},
    ),
    "argparse as a module": Program(
        {"pkg/__init__.py": "", "pkg/cli.py": ARGPARSE},
        "python -u -m pkg.cli",
        {"--batch-size": 64},
        {"--batch-size": 2},
    ),
    "subcommands, parents, groups, other files": Program(
        SUBCOMMANDS,
        "python main.py --seed 3 train --epochs 1",
        {"--batch-size": 32, "--num-workers": 0, "--precision": "fp32", "--epochs": 1},
        {"--batch-size": 64, "--num-workers": 2, "--precision": "bf16", "--seed": 4},
    ),
    "the other subcommand": Program(
        SUBCOMMANDS,
        "python main.py test",
        {"--test-batch": 8, "--seed": -1},
        {"--test-batch": 64},
        {"batch_size": 64},
    ),
    "options of a class and its base": Program(
        INHERITED,
        "python train.py",
        {"--batch_size": 1, "--num_threads": 6, "--n_epochs": 100},
        {"--batch_size": 4},
    ),
    "dataclasses": Program(
        DATACLASSES,
        "python run_clm.py --output_dir x",
        {
            "--per_device_train_batch_size": 8,
            "--dataloader_num_workers": 2,
            "--bf16": False,
            "--block_size": 1024,
        },
        {"--per_device_train_batch_size": 32, "--bf16": True},
    ),
    "click": Program(
        {"main.py": CLICK},
        "python main.py fit-model folder",
        {"--batch-size": 16, "--workers": 2, "--amp": False, "--mode": "a"},
        {"--batch-size": 32, "--workers": 4, "--amp": True},
    ),
    "absl": Program(
        ABSL,
        "python train.py rest",
        {"--batch_size": 128, "--num_workers": 1, "--use_bf16": False},
        {"--batch_size": 256, "--use_bf16": True},
    ),
    "variables that a command overrides": Program(
        NANO,
        "python train.py --compile=False",
        {
            "--batch_size": 12,
            "--gradient_accumulation_steps": 40,
            "--compile": False,
            "--dtype": "float32",
        },
        {"--batch_size": 24, "--gradient_accumulation_steps": 20, "--dtype": "bfloat16"},
    ),
    "a config file between the variables and the command": Program(
        NANO,
        "python train.py config/small.py --learning_rate=0.1",
        {"--batch_size": 64, "--compile": False, "--block_size": 1024},
        {"--batch_size": 128},
    ),
    "hydra": Program(
        HYDRA,
        "python main.py trainer.lr=0.3",
        {"data.batch_size": 32, "data.num_workers": 0, "trainer.amp": False, "trainer.lr": 0.3},
        {"data.batch_size": 64, "data.num_workers": 2, "trainer.amp": True},
    ),
    "hydra with another group": Program(
        HYDRA,
        "python main.py data=cifar",
        {"data.batch_size": 128, "data.num_workers": 4},
        {"data.batch_size": 256},
    ),
    "optparse": Program(
        {"main.py": OPTPARSE},
        "python main.py",
        {"--batch": 4, "--fast": False},
        {"--batch": 8, "--fast": True},
    ),
}
