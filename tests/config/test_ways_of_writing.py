"""Ten ways of writing settings: each value is edited, and no byte outside the value changes."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any

import pytest

from advisor import knobs
from advisor.config import Document, parse

if TYPE_CHECKING:
    from advisor.config import Format

ANCHORS = """\
defaults: &loader
  num_workers: &workers 4   # per rank
  pin_memory: yes
train:
  loader: {<<: *loader, batch_size: 32, shuffle: true}
  accumulate_grad_batches: 2
  optimizer: &adam {lr: 3.0e-4, betas: [0.9, 0.95]}
validation:
  loader:
    <<: *loader
    batch_size: '64'
  workers: *workers
"""
TABLES = """\
title = "arrays of tables"  # a comment = 1

[[stages]]
name = 'warm-up'
batch_size = 1_6
learning_rate = 1e-3

[[stages]]
name = 'main'
batch_size = 64
data = { num_workers = 8, pin_memory = true, "prefetch factor" = 2 }

[stages.amp]
dtype = "float32"
"""
COMMENTED = """\
// experiment of Tuesday { "batch_size": 1 }
{
  "train": {
    "batch_size": 8, // images, not { patches }
    /* "num_workers": 0, */ "num_workers": 6,
    "url": "http://host/a//b", "lr": 0.00005,
  },
  "sampler": {"num_inference_steps": 250,},
}
"""
FIELDS = '''\
from dataclasses import dataclass, field


@dataclass
class Loader:
    """Settings of the loader; batch_size: int = 8."""

    batch_size: int = 16  # batch_size = 16
    num_workers: int = field(default=4)
    pin_memory: bool = True


class Training:
    learning_rate: float = 2e-4; precision = "fp32"
    gradient_accumulation_steps = 2
'''
JOINT = ["python", "train.py", "--batch-size=32", "--lr=1e-3", "--num-workers", "4", "-j8", "--amp"]
HYDRA = [
    "python", "-m", "app.train", "model=unet", "data.batch_size=16", "+trainer.precision=32-true",
    "++data.loader.num_workers=2", "hydra.run.dir=out/${now:%H}",
]  # fmt: skip
YACS = [
    "torchrun", "--nproc_per_node", "2", "tools/train.py", "--config-file", "c.yaml", "--opts",
    "SOLVER.IMS_PER_BATCH", "16", "DATALOADER.NUM_WORKERS", "4", "SOLVER.BASE_LR", "0.02",
]  # fmt: skip
TABS = '{\t"train":\t{"batch_size":\t4,\t"num_workers":2},\n\t"amp"\t:\tfalse\n}\n'
WAYS: dict[str, tuple[Format, bytes, int]] = {
    "YAML anchors and merge keys": ("yaml", ANCHORS.encode(), 5),
    "TOML arrays of tables": ("toml", TABLES.encode(), 6),
    "JSON with comments": ("json", COMMENTED.encode(), 3),
    "Python dataclass defaults": ("python", FIELDS.encode(), 5),
    "argparse --flag=value": ("argv", "\0".join(JOINT).encode(), 4),
    "Hydra overrides": ("argv", "\0".join(HYDRA).encode(), 3),
    "yacs pairs": ("argv", "\0".join(YACS).encode(), 2),
    "CRLF": ("yaml", ANCHORS.replace("\n", "\r\n").encode(), 5),
    "BOM": ("toml", b"\xef\xbb\xbf" + TABLES.encode(), 6),
    "tabs": ("json", TABS.encode(), 2),
}
"""Format, bytes, and how many of its values are knobs."""
NEW: dict[type, tuple[Any, ...]] = {
    int: (1, 7, 4096, 10**9),
    float: (0.5, 1e-7, 3e5, 12.0),
    bool: (True, False),
    str: ("float16", "bf16", "32", "no", "it's"),
}


def lines(content: bytes) -> list[str]:
    """Words of a command, or lines with their ends."""
    text = content.decode()
    return text.split("\0") if "\0" in text else re.findall(r"[^\r\n]*[\r\n]+", text)


def others(document: Document, path: str) -> dict[str, str]:
    """Values beside the one at `path`, and beside those that repeat it."""
    derived = {each for each, target in document.aliases.items() if target == path}
    return {p: repr(s.value) for p, s in document.scalars.items() if p not in {path, *derived}}


@pytest.mark.parametrize("way", WAYS)
def test_each_value_is_edited_in_its_own_bytes(way: str) -> None:
    form, raw, least = WAYS[way]
    document, rng = parse(raw, form, "c"), random.Random(way)
    assert len([knob for knob in knobs.find(document).knobs if knob.editable]) >= least
    for path, scalar in [*document.scalars.items()] * 4:
        if not scalar.editable:
            continue
        new = rng.choice(NEW[type(scalar.value)])
        if (scalar.text.startswith("--") and new is True) or (form == "argv" and new == "32"):
            continue  # a flag that is there already; a word that would read as a number
        edited = document.with_values({path: new})
        if scalar.text.startswith("--"):
            assert edited == raw.replace(b"\0" + scalar.text.encode(), b"")
            continue
        assert edited.startswith(raw[: scalar.span.start])
        assert edited.endswith(raw[scalar.span.end :])
        after = parse(edited, form, "c")
        assert others(after, path) == others(document, path)
        got = after.scalars[path].value
        assert got == new or str(got).lower() == str(new).lower() or float(str(got)) == new
        assert sum(a != b for a, b in zip(lines(raw), lines(edited), strict=True)) <= 1
