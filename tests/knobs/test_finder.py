"""Rules of the finder, each on the smallest document that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.knobs import Findings

NAMES = {
    "batch_size": (
        "batch_size train_batch_size train_micro_batch_size_per_gpu device_train_microbatch_size "
        "global_batch_size micro_batch_size batch_size_per_gpu per_device_train_batch_size "
        "global_train_batch_size eval_batch_size BATCH_SIZE batch_size_per_card val_batch_size "
        "local_batch_size device_eval_batch_size batch IMS_PER_BATCH valid_batch_size batchSize "
        "dataloader_batch_size per_device_batch_size validation_batch_size BATCH_SIZE_PER_GPU "
        "per_device_eval_batch_size BATCHSIZE_PER_REPLICA forward_batch_size seed_batch_size "
        "total_batch_size minibatch_size n_batch max_batch_frames max_frames_in_batch batch_bins "
        "max_batch_length_train max_batch_length_val train_num_rays_per_batch samples_per_gpu "
        "eval_num_rays_per_chunk test_batch_size inference_batch_size mini_batch_size microbatch"
    ),
    "num_workers": (
        "num_workers dataloader_num_workers workers num_worker_per_gpu NUM_WORKERS n_workers "
        "num_loader_workers num_train_workers num_eval_loader_workers max_data_loader_n_workers "
        "num_val_workers num_val_loader_workers ds_workers worker_num NUM_DATALOADER_WORKERS "
        "dl_num_workers dataloader_workers workers_per_gpu numWorkers nworkers"
    ),
    "prefetch_factor": (
        "prefetch_factor dataloader_prefetch_factor dl_prefetch_size prefetch_buffer_size"
    ),
    "persistent_workers": (
        "persistent_workers persistent_data_loader_workers dataloader_persistent_workers"
    ),
    "pin_memory": "pin_memory pin_mem PIN_MEMORY dataloader_pin_memory",
    "grad_accum": (
        "gradient_accumulation_steps accumulate_grad_batches accum_grad accum_iter accum_steps "
        "gradient_accumulate_every accum_count grad_accumulation_factor update_freq "
        "grad_accum_steps"
    ),
    "learning_rate": (
        "lr learning_rate BASE_LR base_learning_rate base_lr lr0 lr_temporal lr_spatial LR "
        "G_optimizer_lr lr_adam finetune_lr learningRate AdamW.lr"
    ),
    "timesteps": (
        "num_inference_steps timestep_respacing sampling_steps sample_timesteps ddim_steps"
    ),
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in NAMES.items() for name in names.split()]
)
def test_a_name_people_use_is_known(kind: str, name: str, find: Callable[..., Findings]) -> None:
    value = "true" if kind in {"persistent_workers", "pin_memory"} else "4"
    assert [k.kind for k in find(f"{name}: {value}\n").knobs] == [kind]


LOOK_ALIKES = [
    "MODEL: {ROI_HEADS: {BATCH_SIZE_PER_IMAGE: 256}}",
    "print_batch_step: 10",
    "batch_size_multiple: 8",
    "nbs: 64",
    "binarization_args: {num_workers: 0}",
    "preprocessing_num_workers: 16",
    "zero_optimization: {offload_optimizer: {device: cpu, pin_memory: true}}",
    "fsdp_config: {fsdp_forward_prefetch: true}",
    "zero_optimization: {stage3_prefetch_bucket_size: 50000000}",
    "checkpointing_steps: 500",
    "trainer: {enable_checkpointing: true}",
    "save: {dtype: float16}",
    "save_precision: fp16",
    "memmap_dtype: uint16",
    "SOLVER: {STEPS: '(60000, 80000)'}",
    "training: {num_steps: 1000}",
    "noise_scheduler: {num_train_timesteps: 1000}",
    "diffusion_steps: 1000",
    "schedule: {num_steps: 1000, beta_start: 0.0001}",
    "unet: {image_size: 64}",
    "model: {input_size: [256, 256]}",
    "augment: {args: {size: [0.5, 3]}}",
    "lr_scheduler: {warmup_lr: 0.000001}",
    "optim: {lr: 0.1, min_lr: 0.001, warmup_epochs: 5}",
    "arg_mappings: {train_micro_batch_size_per_gpu: --per_device_train_batch_size}",
    "train: {max_tokens: 3000000000000}",
    "dataset: {train: {num_samples: 500000}}",
    "export: {benchmark: false}",
    "train: {dataset: {cache_rate: 1.0, num_workers: 4}}",
    "transforms: [{name: ToDtype, dtype: float32}]",
]


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_a_look_alike_is_no_knob_of_a_scored_kind(
    text: str, kinds: Callable[..., dict[str, str]]
) -> None:
    allowed = {"offload", "sharding", "epochs", "cache"} | (
        {"learning_rate"} if "optim:" in text else set()
    )
    found = kinds(text + "\n")
    assert set(found.values()) <= allowed, found
    assert not [path for path in found if "min_lr" in path or "warmup" in path]


def test_a_known_look_alike_is_reported_with_its_reason(find: Callable[..., Findings]) -> None:
    (trap,) = find("nbs: 64\n").traps
    assert (trap.path, trap.document) == ("nbs", "config")
    assert "reference" in trap.why


def test_every_knob_explains_itself(find: Callable[..., Findings]) -> None:
    (knob,) = find("data: {val: {batch_size: 4}}\n").knobs
    by = "by `batch size` in its name +6"
    assert knob.why == f"`batch_size` under `val` is a batch_size {by}, of the eval phase"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("batch_size: 1 # must be 1\n", 'says "must be 1"'),
        ("# do not modify\naccumulate_grad_batches: 1\n", "do not modify"),
        ("batch_size: 8 # must be at most 64 and divisible by 4\n", "at most 64"),
        ("batch_size: 8 # a multiple of 8, keep it as it is\n", "keep it"),
        ("mini_batch_sizes: [8, 5, 4]\n", "list"),
        ("train_micro_batch_size_per_gpu: auto\n", "auto"),
        ("batch_size: ???\n", "???"),
        ("n_batch: null\n", "default"),
        ("dynamic_batching: true\nmax_batch_length: 9\nbatch_size: 8\n", "= true makes it dead"),
        ("batch_type: numel\nbatch_bins: 100\nbatch_size: 8\n", "makes it dead"),
    ],
)
def test_what_must_be_left_alone_is_found_but_not_editable(
    text: str, reason: str, find: Callable[..., Findings]
) -> None:
    frozen = [knob for knob in find(text).knobs if not knob.editable]
    assert len(frozen) == 1
    assert reason in frozen[0].why


@pytest.mark.parametrize(
    "comment", ["per GPU", "batch size of the test loader", "faster with more", "default 8"]
)
def test_a_comment_that_states_no_constraint_freezes_nothing(
    comment: str, find: Callable[..., Findings]
) -> None:
    (knob,) = find(f"batch_size: 8 # {comment}\n").knobs
    assert knob.editable


def test_references_stand_in_links_never_in_knobs(find: Callable[..., Findings]) -> None:
    found = find(
        """\
        scratch: {train_batch_size: 4}
        base: &bs 8
        data: {batch_size: "${scratch.train_batch_size}"}
        val: {batch_size: *bs}
        eval: {num_workers: "${times:2,4}"}
        optimizer: {lr: "@scratch#rate"}
        """
    )
    assert [knob.path for knob in found.knobs] == ["scratch.train_batch_size"]
    links = {link.paths: link.why for link in found.links if link.kind == "reference"}
    assert set(links) == {
        ("data.batch_size", "scratch.train_batch_size"),
        ("val.batch_size", "base"),
        ("eval.num_workers",),
        ("optimizer.lr",),
    }
    assert "scratch.train_batch_size" in links["data.batch_size", "scratch.train_batch_size"]


def test_a_repeated_list_is_a_reference(find: Callable[..., Findings]) -> None:
    found = find("size: &size [640, 640]\nEvalReader: {Resize: {target_size: *size}}\n")
    assert [link.paths for link in found.links] == [("EvalReader.Resize.target_size", "size")]
    assert not found.knobs


def test_a_key_inside_a_recipe_that_overrides_another_is_a_trap(
    find: Callable[..., Findings],
) -> None:
    found = find("data:\n  crop_size: 224\nmild:\n  data.crop_size: 176\n  max_epochs: 36\n")
    assert [knob.path for knob in found.knobs] == ["data.crop_size"]


def test_a_size_the_model_takes_is_architecture(find: Callable[..., Findings]) -> None:
    found = find("scratch: {resolution: 1024}\nmodel: {image_size: '${scratch.resolution}'}\n")
    assert not found.knobs
    assert "architecture" in found.traps[0].why


@pytest.mark.parametrize(
    ("text", "unit", "scope"),
    [
        ("global_batch_size: 64\n", "sample", "global"),
        ("train_micro_batch_size_per_gpu: 4\n", "sample", "micro"),
        ("per_device_train_batch_size: 4\n", "sample", "device"),
        ("batch_size: 2 # per GPU\n", "sample", "device"),
        ("batch_size: 2 # global batch\n", "sample", "global"),
        ("num_gpus: 4\nbatch_size: 16\n", "sample", "global"),
        ("batch_type: tokens\nbatch_size: 4096\n", "token", None),
        ("max_frames_in_batch: 2000\n", "frame", "device"),
        ("max_batch_length_train: 850\n", "second", "device"),
        ("train_num_rays_per_batch: 4096\n", "ray", None),
        ("dataset: {max_tokens: 4000}\n", "token", "device"),
        ("total_batch_size: 512\nbatch_size_per_gpu: 4\n", "sample", "micro"),
    ],
)
def test_what_a_batch_counts_and_who_shares_it(
    text: str, unit: str, scope: str | None, find: Callable[..., Findings]
) -> None:
    knob = [k for k in find(text).knobs if k.kind == "batch_size"][-1]
    assert (knob.unit, knob.scope) == (unit, scope)


@pytest.mark.parametrize(
    ("text", "phase", "knob_class"),
    [
        ("train: {batch_size: 4}\n", "train", "training"),
        ("val_batch_size: 4\n", "eval", "free"),
        ("datasets: {test: {dataloader: {batch_size: 1}}}\n", "test", "free"),
        ("datasets: {train: {val_args: {batch_size: 1}}}\n", "eval", "free"),
        ("inference: {batch_size: 4}\n", "test", "free"),
        ("lr: 0.1\nbatch_size: 4\n", "train", "training"),
        ("TrainReader: {batch_size: 2}\n", "train", "training"),
        ("mode: test\nbatch_size: 4\n", "test", "free"),
    ],
)
def test_the_phase_decides_the_class_of_a_batch(
    text: str, phase: str, knob_class: str, find: Callable[..., Findings]
) -> None:
    knob = next(k for k in find(text).knobs if k.kind == "batch_size")
    assert (knob.phase, knob.knob_class) == (phase, knob_class)


def test_one_loader_block_of_a_config_with_both_phases_is_of_any_phase(
    find: Callable[..., Findings],
) -> None:
    found = find("DATA_LOADER: {NUM_WORKERS: 8}\nTRAIN: {EPOCHS: 3}\nTEST: {ENABLE: true}\n")
    assert next(k for k in found.knobs if k.kind == "num_workers").phase == "any"


def test_short_keys_of_a_config_are_no_flags(kinds: Callable[..., dict[str, str]]) -> None:
    assert kinds("b: 8\nj: 4\n") == {}


def test_named_files_are_reported_as_the_place_where_values_live(
    find: Callable[..., Findings],
) -> None:
    found = find("_BASE_: ../Base.yaml\ndeepspeed: ds.json\ndefaults: [{model: unet}, _self_]\n")
    assert [reference.file for reference in found.references] == [
        "../Base.yaml",
        "ds.json",
        "model/unet.yaml",
    ]
    assert {link.kind for link in found.links} == {"reference"}


def test_outputs_are_directories_written_to_not_data_read(find: Callable[..., Findings]) -> None:
    found = find(
        """\
        output_dir: runs/a
        data_dir: data/train
        train: {save_dir: ckpt, log_dir: "${output_dir}/log"}
        tokenizer: {path: tok}
        checkpointer: {checkpoint_dir: models/base, output_dir: models/new}
        model: {dir: models/base}
        run: {dir: runs/b}
        upload_dir: s3://bucket/x
        """
    )
    assert found.outputs == ("output_dir", "train.save_dir", "checkpointer.output_dir", "run.dir")
