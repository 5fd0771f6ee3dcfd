"""Names: what each text of names.jsonl and each config of shapes.yaml has, and nothing else."""

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.knobs.conftest import find, kinds

HERE = Path(__file__).parent
NAMES = [json.loads(line) for line in (HERE / "names.jsonl").read_text().splitlines()]
SHAPES = yaml.safe_load((HERE / "shapes.yaml").read_text())
SCORED = {
    *("batch_size", "num_workers", "grad_accum", "pin_memory", "prefetch_factor"),
    *("persistent_workers", "precision", "timesteps"),
    "grad_checkpoint",
}


def test_a_name_in_its_place_has_one_meaning() -> None:
    assert {text: kinds(f"{text}\n") for text, _ in NAMES} == dict(NAMES)


@pytest.mark.parametrize("shape", SHAPES)
def test_exactly_the_knobs_of_a_framework_are_found(shape) -> None:
    text, wanted = SHAPES[shape]["config"], SHAPES[shape]["knobs"]
    form = "json" if text.startswith("{") else "yaml"
    others = {"grad_checkpoint"} - set(wanted.values())
    found = {path: kind for path, kind in kinds(text, form).items() if kind in SCORED - others}
    assert found == wanted


STYLES: dict[str, Callable[[list[str]], str]] = {
    "snake": "_".join,
    "upper": lambda words: "_".join(words).upper(),
    "kebab": "-".join,
    "camel": lambda words: words[0] + "".join(w.capitalize() for w in words[1:]),
    "numbered": lambda words: "_".join(words) + "1",
}


@pytest.mark.parametrize("style", STYLES)
def test_words_are_found_in_every_way_to_join_them(style) -> None:
    """Core, part and phase in any order and spelling: always the same kind."""
    draw = random.Random(f"names {style}")
    cores = {
        "batch size": "batch_size",
        "workers": "num_workers",
        "accumulation steps": "grad_accum",
    }
    around = ["train", "val", "loader", "image", "total", "encoder", "student", "per device", "my"]
    for core, kind in itertools.chain(*[list(cores.items())] * 8):
        before = draw.choice(around).split()
        name = STYLES[style](before + core.split())
        found = [knob.kind for knob in find(f'"{name}": 8\n').knobs]
        assert found == [kind], name


PROGRAM = """\
import os

world_size = int(os.getenv("WORLD_SIZE", 1))
cfg = dict(use_checkpoint=True, batch_size=4 * 8)
net = dict(use_checkpoint=cfg["use_checkpoint"], train=dict(lr=0.1))
"""


def test_a_computed_value_is_no_setting() -> None:
    assert kinds(PROGRAM, "python") == {"cfg.use_checkpoint": "grad_checkpoint"}
