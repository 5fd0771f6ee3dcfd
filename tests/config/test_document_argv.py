"""The user's command as a document."""

import shlex

import pytest

from advisor.config import of_command
from advisor.errors import EditRefusedError


def values(command: str) -> dict[str, object]:
    return {path: s.value for path, s in of_command(shlex.split(command)).scalars.items()}


LAUNCHERS = [
    "python train.py",
    "python3.11 -u -W ignore train.py",
    "torchrun --nproc_per_node 2 --standalone train.py",
    "python -m torch.distributed.run --nproc_per_node 2 train.py",
    "accelerate launch --num_processes 2 --mixed_precision fp16 train.py",
    "env CUDA_VISIBLE_DEVICES=0 OMP=1 python train.py",
    "nohup nice -n 5 python train.py",
    "srun -n 2 python -m pkg",
    "uv run python train.py",
    "bash -e run.sh",
    "nsys profile -o out --trace=cuda python train.py",
    "py-spy record -o x.svg -- python train.py",
    "apptainer exec --nv image.sif python train.py",
    "python -m cProfile -o x.prof train.py",
    "python -c 'import pkg; pkg.main()'",
]
OPAQUE = ["bash -c 'python t.py --lr 1'", "bash -lc 'x --lr 1'", "torchrun --n 2", "python"]


def test_flags_before_the_program_are_not_its_knobs() -> None:
    """A command that hides its program has none."""
    wanted = {"--batch-size": 8}
    assert [
        launcher for launcher in LAUNCHERS if values(f"{launcher} --batch-size 8") != wanted
    ] == []
    assert [command for command in OPAQUE if values(command)] == []


def test_every_way_to_spell_a_flag() -> None:
    command = (
        "python t.py test --batch-size 8 --lr=1e-4 -w 4 -j2 --offset -3 --amp "
        "data.batch_size=16 +trainer.precision=16-mixed ++a/b@c=1 --name x --use_ema True"
    )
    assert values(command) == {
        "--batch-size": 8,
        "--lr": 1e-4,
        "-w": 4,
        "-j": 2,
        "--offset": -3,
        "--amp": True,
        "data.batch_size": 16,
        "trainer.precision": "16-mixed",
        "a/b@c": 1,
        "--name": "x",
        "--use_ema": True,
    }


def test_keys_whose_values_are_the_next_words_are_settings() -> None:
    """yacs takes `KEY VALUE` pairs; words that only look so (files, values of flags) are none."""
    command = (
        "python t.py --config-file c/base.yaml --num-gpus 1 SOLVER.IMS_PER_BATCH 4 "
        "OUTPUT_DIR out DATALOADER.NUM_WORKERS 2"
    )
    assert values(command) == {
        "--config-file": "c/base.yaml",
        "--num-gpus": 1,
        "SOLVER.IMS_PER_BATCH": 4,
        "DATALOADER.NUM_WORKERS": 2,
    }
    mmengine = "python t.py c.py --cfg-options train_dataloader.batch_size=4 a.b=2"
    assert values(mmengine) == {"--cfg-options": True, "train_dataloader.batch_size": 4, "a.b": 2}
    assert values("python t.py a.txt 4 -- A.B 3") == {}


@pytest.mark.parametrize(
    ("command", "path", "value"),
    [
        ("--gpus 0 1", "--gpus", 2),
        ("sizes=[1,2]", "sizes", 2),
        ("lr=0.1,0.2", "lr", 0.3),
        ("lr=${x}", "lr", 0.3),
        ("--amp", "--amp", 4),
        ("--p 1", "--p", None),
        ("--p 1", "--q", 1),
    ],
)
def test_what_is_no_single_value_is_refused(command, path, value) -> None:
    document = of_command(["python", "t.py", *command.split()])
    with pytest.raises(EditRefusedError, match="command line"):
        document.with_values({path: value})  # type: ignore[dict-item]
