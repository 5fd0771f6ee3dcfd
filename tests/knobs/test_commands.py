"""What a command tells: its knobs, in whatever spelling, and the phase that it runs."""

import pytest

from advisor import config as documents, knobs
from tests.knobs.conftest import document


@pytest.mark.parametrize(
    ("command", "phase"),
    [
        ("python run.py -p test -c c.json", "test"),
        ("python main.py fit --config c.yaml", "train"),
        ("python main.py predict --config c.yaml", "test"),
        ("python main.py --evaluate", "test"),
        ("python train.py --batch-size 8", None),
        ("python test.py", None),
    ],
)
def test_a_command_says_which_phase_it_runs(command, phase) -> None:
    """The name of the program alone says nothing: many a train.py is told to test."""
    assert knobs.phase_of_command(documents.of_command(command.split())) == phase


def test_what_a_config_leaves_open_is_of_the_phase_that_the_command_says() -> None:
    config = document("lr: 0.1\nloader: {batch_size: 8}\ntrain: {num_workers: 4}\n")
    found = knobs.find(config, phase="test")
    assert {k.path: k.phase for k in found.knobs} == {
        "loader.batch_size": "test",
        "train.num_workers": "train",
    }
    assert knobs.find(config).knob("loader.batch_size").phase == "train"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python train.py --img 640 --batch 8", {"--batch": "batch_size"}),
        ("python train.py --bsz 8 --nw 6", {"--bsz": "batch_size", "--nw": "num_workers"}),
        ("python train.py --nw 6", {}),
        ("python train.py --gamma 0.9 --lr 0.1 --ep 8 --tp 2", {}),
        ("python solve.py --iterations 30000", {}),
        ("python infer.py --n_steps 50", {"--n_steps": "timesteps"}),
        ("conda run -n test python train.py --n_steps 50", {}),
    ],
)
def test_the_knobs_of_a_command(command, found) -> None:
    """It is called by its program, whatever the interpreter takes and in whatever environment."""
    document = documents.of_command(command.split())
    assert {knob.path: knob.kind for knob in knobs.find(document).knobs} == found


def test_the_command_line_is_a_document_too() -> None:
    command = ["python", "run.py", "-p", "test", "-b", "8", "--num-workers=4", "--n_timestep"]
    found = knobs.find(documents.of_command([*command, "512", "--out_dir", "x", "data.lr=0.1"]))
    assert {(k.path, k.kind, k.value) for k in found.knobs} == {
        ("-b", "batch_size", 8),
        ("--num-workers", "num_workers", 4),
        ("--n_timestep", "timesteps", 512),
    }
    assert found.knob("-b").phase == "test"  # type: ignore[union-attr]
    assert found.outputs == ("--out_dir",)
