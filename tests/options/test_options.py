"""Options that nobody typed, read from the source of programs such as people have.

Every program here prints what it was told. It is asked with its own command and with the changed
one: what was read must be what it says by itself, and what was added must be what it hears.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from advisor import options
from advisor.documents import of_command, split_command

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


TELL = "import json; print(json.dumps({}))"

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

DATACLASSES = {
    "transformers.py": """\
import argparse, dataclasses, typing
def truth(text):
    return {"true": True, "false": False}[text.lower()]
class HfArgumentParser(argparse.ArgumentParser):
    def __init__(self, kinds):
        super().__init__()
        self.kinds = kinds
        for kind in kinds:
            for each in dataclasses.fields(kind):
                made = {"int": int, "float": float, "bool": truth}.get(each.type, str)
                self.add_argument(f"--{each.name}", type=made, default=each.default)
@dataclasses.dataclass
class TrainingArguments:
    per_device_train_batch_size: "int" = dataclasses.field(
        default=8, metadata={"help": "Batch size per device"})
    dataloader_num_workers: "int" = 0
    bf16: "bool" = False
    output_dir: "str" = "out"
""",
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

ABSL = {
    "absl/__init__.py": "",
    "absl/flags.py": """\
import sys
known = {}
def DEFINE_integer(name, default, help, **kw): known[name] = (int, default)
def DEFINE_bool(name, default, help): known[name] = (lambda t: t.lower() == "true", default)
def parse():
    said = {name: default for name, (_, default) in known.items()}
    for word in sys.argv[1:]:
        if not word.startswith("--"):
            break  # as absl does: the first word that is no flag ends them
        name, _, text = word[2:].partition("=")
        said[name] = known[name][0](text)
    return said
""",
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

HYDRA = {
    "hydra/__init__.py": """\
import functools, json, os, sys
import yaml
def main(config_path, config_name, version_base=None):
    def wrap(function):
        def run():
            folder = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), config_path)
            overrides = dict(w.split("=", 1) for w in sys.argv[1:])
            def load(name):
                return yaml.safe_load(open(os.path.join(folder, name + ".yaml")))
            own = load(config_name)
            whole = {}
            for entry in own.pop("defaults"):
                if isinstance(entry, dict):
                    (group, option), = entry.items()
                    option = overrides.pop(group, option)
                    whole.setdefault(group, {}).update(load(f"{group}/{option}"))
            for key, value in own.items():
                whole[key] = {**whole.get(key, {}), **value} if isinstance(value, dict) else value
            for path, text in overrides.items():
                *above, last = path.split(".")
                holder = functools.reduce(lambda d, k: d[k], above, whole)
                assert last in holder, path
                holder[last] = yaml.safe_load(text)
            function(whole)
        return run
    return wrap
""",
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

LIGHTNING = {
    "lightning.py": """\
import inspect, json, sys
class LightningModule: pass
class LightningDataModule: pass
def LightningCLI(model, data):
    assert sys.argv[1] == "fit"
    said = {}
    for kind, what in ((model, "model"), (data, "data")):
        for name, parameter in inspect.signature(kind.__init__).parameters.items():
            if name != "self":
                said[f"{what}.{name}"] = parameter.default
    words = sys.argv[2:]
    for flag, text in zip(words[::2], words[1::2]):
        name = flag.removeprefix("--")
        said[name] = json.loads(text.lower()) if name in said else text
    print(json.dumps(said))
""",
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

CONFIG_FLAGS = {
    "ml_collections/__init__.py": "class ConfigDict:\n    pass\n",
    "ml_collections/config_flags.py": """\
import runpy, sys, json
def DEFINE_config_file(name, default):
    words = dict(w[2:].split("=", 1) for w in sys.argv[1:])
    config = runpy.run_path(words.pop(name, default))["get_config"]()
    for path, text in words.items():
        *above, last = path.split(".")[1:]
        holder = config
        for part in above:
            holder = getattr(holder, part)
        setattr(holder, last, json.loads(text.lower()))
    def flat(node, above):
        for key, value in vars(node).items():
            if hasattr(value, "__dict__"):
                yield from flat(value, f"{above}.{key}")
            else:
                yield f"{above}.{key}", value
    print(json.dumps(dict(flat(config, name))))
""",
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


def said_by(folder: Path, command: tuple[str, ...]) -> dict[str, Any]:
    """What the program was told, by itself."""
    words = (sys.executable, *command[1:])
    path = os.pathsep.join(p for p in sys.path if p.endswith("site-packages"))
    done = subprocess.run(
        words,
        cwd=folder,
        env={"PYTHONPATH": path, "PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("case", PROGRAMS)
def test_what_is_read_is_what_the_program_says_and_what_is_added_is_what_it_hears(
    tmp_path: Path, case: str
) -> None:
    program = PROGRAMS[case]
    if "click" in case:
        pytest.importorskip("click")
    for name, text in program.files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    command = tuple(shlex.split(program.command))
    document = of_command(command, options.of_command(command, tmp_path))

    found = {flag: document.scalars[flag].value for flag in program.defaults}
    assert found == program.defaults
    own = said_by(tmp_path, command)
    for flag, value in program.defaults.items():
        if not program.hears:
            assert heard(own, flag) == value

    tuned = split_command(document.with_values(program.set))
    hears = program.hears or {destination(flag): value for flag, value in program.set.items()}
    after = said_by(tmp_path, tuned)
    assert {name: after[name] for name in hears} == hears
    assert {n: v for n, v in after.items() if n not in hears} == {
        n: v for n, v in own.items() if n not in hears
    }
    left = iter(tuned)
    assert all(word in left for word in command if word not in added_over(document, program))


def added_over(document: Any, program: Program) -> set[str]:
    """Words of the command that a set value replaces."""
    typed = (document.scalars[flag] for flag in program.set)
    return {
        word for s in typed if s.default_of is None for word in (s.text, f"{s.path}={s.text}")
    } | {"-j2"}


def destination(flag: str) -> str:
    return flag.lstrip("-") if "." in flag else flag.lstrip("-").replace("-", "_")


def heard(said: dict[str, Any], flag: str) -> Any:
    return said[destination(flag)]


def test_each_default_says_where_it_is_written_and_what_it_is_for(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(ARGPARSE)
    command = ("python", "main.py")
    scalar = of_command(command, options.of_command(command, tmp_path)).scalars["--batch-size"]
    assert scalar.default_of == "main.py:5"
    assert scalar.comment == "input batch size for training (default: 64)"


def test_code_that_the_program_never_reaches_declares_nothing(tmp_path: Path) -> None:
    """A parser under another file's `__main__`, or in a function that nobody calls."""
    for name, text in SUBCOMMANDS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = options.of_command(("python", "main.py", "train"), tmp_path)
    assert "--unused-workers" not in {option.flag for option in found}
    assert "--test-batch" not in {option.flag for option in found}, "of another subcommand"


WITHOUT = {
    "a shell command": ("bash", "-c", "python main.py"),
    "a script that is not there": ("python", "gone.py"),
    "a program that is no Python": ("ls", "-l"),
    "an interpreter alone": ("python",),
    "a script that does not parse": ("python", "broken.py"),
    "nothing": (),
    "code that is longer than any name": ("python", "-c", "pass\n" * 2000),
    "a module": ("python", "-m", "json.tool"),
}


@pytest.mark.parametrize("case", WITHOUT)
def test_a_program_that_cannot_be_read_has_no_options_and_does_no_harm(
    tmp_path: Path, case: str
) -> None:
    (tmp_path / "main.py").write_text(ARGPARSE)
    (tmp_path / "broken.py").write_text("def (:\n")
    assert options.of_command(WITHOUT[case], tmp_path) == ()


def test_a_program_is_read_and_never_run_or_imported(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    ran = f"open({str(witness)!r}, 'w').close()\n"
    (tmp_path / "side.py").write_text(ran)
    (tmp_path / "main.py").write_text(f"{ran}import side\n{ARGPARSE}")
    assert options.of_command(("python", "main.py"), tmp_path)
    assert not witness.exists()


REFUSED = {
    "type=bool takes every text for true": "p.add_argument('--x', type=bool, default=True)",
    "several values": "p.add_argument('--x', type=int, nargs='+', default=3)",
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_option_that_cannot_be_set_to_one_value_says_why(tmp_path: Path, case: str) -> None:
    text = f"import argparse\np = argparse.ArgumentParser()\n{REFUSED[case]}\n"
    (tmp_path / "main.py").write_text(text)
    command = ("python", "main.py")
    scalar = of_command(command, options.of_command(command, tmp_path)).scalars["--x"]
    assert not scalar.editable
    assert scalar.why


def test_a_default_that_only_running_would_tell_is_none(tmp_path: Path) -> None:
    text = "import argparse, os\np = argparse.ArgumentParser()\n"
    text += "p.add_argument('--workers', type=int, default=os.cpu_count())\n"
    (tmp_path / "main.py").write_text(text)
    (option,) = options.of_command(("python", "main.py"), tmp_path)
    assert option.default is None
