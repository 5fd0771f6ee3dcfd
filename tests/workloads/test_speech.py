"""The speech program: it trains on utterances of various lengths, and says how much it pads."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from advisor.model import MeasurePlan
from tests.probe import program
from tests.workloads import scripts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks" / "workloads" / "speech"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The shipped class with few utterances and a small model."""
    text = (ROOT / "config" / "speech.py").read_text()
    few = {"UTTERANCES": 112, "FEATURES": 8, "CHANNELS": 8, "HIDDEN": 8, "BATCH_SIZE": 8}
    for name, value in few.items():
        text, found = re.subn(rf"{name} = \d+", f"{name} = {value}", text)
        assert found == 1
    path = tmp_path / "small.py"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def modules() -> Iterator[tuple[ModuleType, ModuleType]]:
    with scripts.beside(FOLDER, "utterances", "network") as (utterances, network):
        yield utterances, network


def test_the_command_trains_and_leaves_its_outputs(config: Path, tmp_path: Path) -> None:
    flags = ("--config", config, "--data-root", tmp_path / "data", "--epochs", 2)
    printed = scripts.run(FOLDER / "train.py", *flags, cwd=tmp_path)
    losses = [float(loss) for loss in re.findall(r"^epoch \d+ loss (\S+)", printed, re.MULTILINE)]
    assert len(losses) == 2
    assert np.isfinite(losses).all()
    folder = tmp_path / "experiments/speech"
    assert json.loads((folder / "metrics.json").read_text())["epoch"] == 2
    assert torch.load(folder / "encoder.pt", weights_only=True)


def test_what_is_padded_does_not_change_what_is_told(
    modules: tuple[ModuleType, ModuleType],
) -> None:
    """An utterance alone, and beside a longer one: but for the two frames at its border."""
    utterances, network = modules
    torch.manual_seed(0)
    model = network.SpeechEncoder(4, 4, 4, 3).eval()
    short, long, other = torch.randn(90, 4), torch.randn(300, 4), torch.randn(90, 4)
    both, lengths, _ = utterances.padded([(short, 0), (long, 1), (other, 2)])
    assert lengths.tolist() == [90, 300, 90]
    alone = model(*utterances.padded([(short, 0)])[:2])[0]
    beside, _, another = model(both, lengths)
    assert (beside - alone).abs().max() < 0.1 * (another - alone).abs().max()


def test_lengths_differ_much(modules: tuple[ModuleType, ModuleType], tmp_path: Path) -> None:
    folder = modules[0].dataset(tmp_path, 60, 4, 6, 1)
    lengths = [len(np.load(file)) for file in folder.glob("*.npy")]
    assert len(lengths) == 60
    assert max(lengths) > 3 * np.median(lengths) or max(lengths) > 4 * min(lengths)


def test_the_share_of_padding_and_the_waits_are_those_of_the_program(
    config: Path, tmp_path: Path
) -> None:
    """Over every batch, to the last position; and the lines of the loop that read numbers."""
    scratch = tmp_path / "probe"
    scratch.mkdir()
    outcome = program.run(
        scratch,
        *(
            sys.executable,
            str(ROOT / "tests/workloads/padding_by_hand.py"),
            str(FOLDER / "train.py"),
        ),
        *("--config", str(config), "--data-root", str(tmp_path / "data"), "--epochs", "2"),
        cwd=tmp_path,
        plan=MeasurePlan(mode="whole"),
        begin=program.forked,
    )
    by_hand = json.loads((tmp_path / "padding.json").read_text())
    seen = outcome.measured
    assert seen.effects.padding_share == pytest.approx(by_hand["padding_share"], abs=1e-12)
    calls = {(point.site.rpartition("/")[2], point.call) for point in seen.syncs}
    code = (FOLDER / "train.py").read_text().splitlines()
    wanted = {
        (f"train.py:{number}", "item")
        for number, line in enumerate(code, 1)
        if line.strip().startswith(("total +=", "right +=")) and "argmax(dim=1).cpu" not in line
    }
    assert wanted <= calls
