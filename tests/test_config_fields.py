"""What a config may hold is what its program's parser declares: a line added there is heard.

Every program here prints its settings. A field that its config does not hold is set to another
value in the file, and must be what the program then prints.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from advisor import config as documents
from advisor.commands import program_options
from advisor.commands.inspect import inspect, is_default
from tests.support.processes import ran

pytestmark = pytest.mark.frameworks


@dataclass(frozen=True)
class Program:
    """Source, config, words after `main.py`, defaults that are offered, and a value to set."""

    source: str
    config: str
    words: tuple[str, ...]
    offered: dict[str, Any]
    set: tuple[str, Any]
    needs: str


DATACLASS = """\
import json, sys
from dataclasses import asdict, dataclass, field
@dataclass
class Data:
    num_workers: int = 0
    root: str = "data"
@dataclass
class Run:
    batch_size: int = 8
    lr: float = 0.1
    data: Data = field(default_factory=Data)
"""
NESTED = "lr: 0.2\nbatch_size: 16\ndata:\n  root: there\n"

PROGRAMS = {
    "transformers": Program(
        source="""\
import json, sys
from transformers import HfArgumentParser, TrainingArguments
(args,) = HfArgumentParser(TrainingArguments).parse_yaml_file(sys.argv[1])
print(json.dumps(args.to_dict(), default=str))
""",
        config="output_dir: out\nper_device_train_batch_size: 4\nuse_cpu: true\n",
        words=("run.yaml",),
        offered={"gradient_accumulation_steps": 1, "dataloader_num_workers": 0},
        set=("dataloader_num_workers", 3),
        needs="transformers",
    ),
    "jsonargparse": Program(
        source=f"""\
{DATACLASS}
from jsonargparse import ArgumentParser
parser = ArgumentParser()
parser.add_argument("--config", action="config")
parser.add_class_arguments(Run, "run")
args = parser.parse_args()
print(json.dumps(args.run.as_dict(), default=str))
""",
        config="run:\n  lr: 0.2\n  batch_size: 16\n  data:\n    root: there\n",
        words=("--config", "run.yaml"),
        offered={"run.data.num_workers": 0},
        set=("run.data.num_workers", 3),
        needs="jsonargparse",
    ),
    "omegaconf": Program(
        source=f"""\
{DATACLASS}
from omegaconf import OmegaConf
args = OmegaConf.merge(OmegaConf.structured(Run), OmegaConf.load(sys.argv[1]))
print(json.dumps(OmegaConf.to_container(args)))
""",
        config=NESTED,
        words=("run.yaml",),
        offered={"data.num_workers": 0},
        set=("data.num_workers", 3),
        needs="omegaconf",
    ),
    "draccus": Program(
        source=f"{DATACLASS}import draccus\nprint(json.dumps(asdict(draccus.parse(Run))))\n",
        config=NESTED,
        words=("--config_path", "run.yaml"),
        offered={"data.num_workers": 0},
        set=("data.num_workers", 3),
        needs="draccus",
    ),
    "pydantic-settings": Program(
        source="""\
import json
from pydantic import BaseModel
from pydantic_settings import BaseSettings, YamlConfigSettingsSource
class Data(BaseModel):
    num_workers: int = 0
    root: str = "data"
class Run(BaseSettings):
    batch_size: int = 8
    lr: float = 0.1
    data: Data = Data()
    @classmethod
    def settings_customise_sources(cls, settings_cls, **others):
        return (YamlConfigSettingsSource(settings_cls, "run.yaml"),)
print(json.dumps(Run().model_dump()))
""",
        config=NESTED,
        words=("run.yaml",),
        offered={"data.num_workers": 0},
        set=("data.num_workers", 3),
        needs="pydantic_settings",
    ),
}


def written(folder: Path, program: Program) -> tuple[documents.Document, tuple[str, ...]]:
    """Its config with what it may gain, and its command."""
    (folder / "main.py").write_text(program.source)
    (folder / "run.yaml").write_text(program.config)
    command = (sys.executable, "main.py", *program.words)
    read = documents.read(folder / "run.yaml")
    return program_options.with_fields(read, command, folder, (), None), command


def printed_by(folder: Path, command: tuple[str, ...]) -> dict[str, Any]:
    kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    done = ran(*command, cwd=folder, env={**kept, "PATH": os.defpath}, timeout=60)
    assert done.returncode == 0, done.stderr
    shown: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return shown


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_field_that_the_config_does_not_hold_is_a_setting_of_it(tmp_path, name) -> None:
    program = PROGRAMS[name]
    pytest.importorskip(program.needs)
    document, command = written(tmp_path, program)
    added = {path: leaf.value for path, leaf in document.leaves.items() if not leaf.given}
    assert added.items() >= program.offered.items()
    path, value = program.set
    (tmp_path / "run.yaml").write_bytes(document.with_values({path: value}))
    found: Any = printed_by(tmp_path, command)
    for part in path.removeprefix("run.").split("."):
        found = found[part]
    assert found == value


def test_another_file_of_the_program_gains_nothing(tmp_path) -> None:
    """A config of DeepSpeed has keys of its own, which the parser does not know."""
    program = PROGRAMS["transformers"]
    pytest.importorskip(program.needs)
    _, command = written(tmp_path, program)
    other = documents.parse(b"zero_optimization:\n  stage: 2\nbf16: auto\n", "yaml", "ds.yaml")
    assert program_options.with_fields(other, command, tmp_path, (), None) is other


def test_a_program_that_names_no_such_library_is_not_started(tmp_path) -> None:
    (tmp_path / "main.py").write_text("open('started', 'w').close()\n")
    read = documents.parse(b"batch_size: 4\n", "yaml", "run.yaml")
    command = (sys.executable, "main.py", "run.yaml")
    assert program_options.with_fields(read, command, tmp_path, (), None) is read
    assert not (tmp_path / "started").exists()


def test_inspect_shows_what_the_config_may_gain(tmp_path, monkeypatch) -> None:
    program = PROGRAMS["omegaconf"]
    pytest.importorskip(program.needs)
    _, command = written(tmp_path, program)
    monkeypatch.chdir(tmp_path)
    found, _ = inspect([Path("run.yaml")], command)
    (workers,) = [knob for knob in found.findings.knobs if knob.path == "data.num_workers"]
    assert is_default(workers, found.document)
