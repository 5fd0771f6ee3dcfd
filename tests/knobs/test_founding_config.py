"""The founding case: a diffusion config in JSON with comments, for training and testing."""

from __future__ import annotations

from advisor import knobs
from tests.knobs.conftest import document

CONFIG = """\
{
    "name": "terrain", // experiments folder
    "gpu_ids": [0],
    "path": {"base_dir": "experiments", "code": "code", "resume_state": null},
    "datasets": {
        "train": {
            "which_dataset": {"args": {"image_size": [256, 256], "data_len": -1}},
            "dataloader": {
                "validation_split": 2,
                "args": {
                    "batch_size": 16, // batch size in each gpu
                    "num_workers": 8,
                    "pin_memory": true
                },
                "val_args": {"batch_size": 4, "num_workers": 2, "pin_memory": false}
            }
        },
        "test": {
            "which_dataset": {"args": {"image_size": [256, 256]}},
            "dataloader": {
                "args": {
                    // "batch_size": 4,
                    "batch_size": 1, // Keep at 1 - code assumes single batch
                    "num_workers": 12,
                    "pin_memory": true
                }
            }
        }
    },
    "model": {
        "which_model": {"args": {"sample_num": 12, "optimizers": [{"lr": 5e-5}]}},
        "which_networks": [{"args": {
            "unet": {"image_size": 256, "dropout": 0.2},
            "beta_schedule": {
                "train": {"schedule": "linear", "n_timestep": 2000,
                          "linear_start": 1e-6, "linear_end": 0.01},
                "test": {"schedule": "linear", "n_timestep": 1000,
                         // "n_timestep": 10, // debug
                         "linear_start": 1e-4, "linear_end": 0.09}
            }
        }}]
    },
    "train": {"n_epoch": 1e8, "n_iter": 1e8, "val_epoch": 5, "log_iter": 1000}
}
"""
TEST_ARGS = "datasets.test.dataloader.args"
SCHEDULE = "model.which_networks[0].args.beta_schedule"


FOUNDING = document(CONFIG, "json")
FOUND = knobs.find(FOUNDING)


def test_the_knobs_of_the_test_phase_are_free_or_of_quality() -> None:
    ours = {k.path: (k.kind, k.knob_class) for k in FOUND.knobs if k.phase == "test"}
    assert ours == {
        f"{TEST_ARGS}.batch_size": ("batch_size", "free"),
        f"{TEST_ARGS}.num_workers": ("num_workers", "free"),
        f"{TEST_ARGS}.pin_memory": ("pin_memory", "free"),
        f"{SCHEDULE}.test.n_timestep": ("timesteps", "quality"),
    }


def test_training_and_validation_loaders_are_told_apart() -> None:
    loader = "datasets.train.dataloader"
    batches = {k.path: k for k in FOUND.knobs if k.kind == "batch_size"}
    train, val = batches[f"{loader}.args.batch_size"], batches[f"{loader}.val_args.batch_size"]
    assert (train.phase, train.knob_class, train.scope) == ("train", "training", "device")
    assert (val.phase, val.knob_class) == ("eval", "free")
    traps = {trap.path for trap in FOUND.traps}
    assert {f"{SCHEDULE}.train.n_timestep", f"{SCHEDULE}.test.linear_end"} <= traps
    assert not traps & {knob.path for knob in FOUND.knobs}


def test_steps_move_with_their_schedule() -> None:
    moved = knobs.move(FOUNDING, FOUND, f"{SCHEDULE}.test.n_timestep", 512)
    assert not isinstance(moved, knobs.InvalidChange)
    assert {change.path.rsplit(".", 1)[-1]: change.kind for change in moved} == {
        "n_timestep": "timesteps",
        "linear_start": "schedule",
        "linear_end": "schedule",
    }
    assert FOUNDING.with_values({change.path: change.new for change in moved})
