"""Classes of names that configs of frameworks nobody here had seen were missed or misread by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.knobs import Findings

SWITCHES = {
    "channels_last": "enable_nhwc useChannelsLast",
    "cudnn_benchmark": "enable_cudnn_bench CUDNN_AUTOTUNE",
    "tf32": "tf32_matmuls_on with_tf32",
    "compile": "do_torch_compile unet_compile",
    "attention_impl": "with_flash_attn sage_attention use_xformers_unet",
    "prefetch_factor": "data_prefetch",
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, some in SWITCHES.items() for name in some.split()]
)
def test_a_switch_is_known_by_its_words(
    kind: str, name: str, find: Callable[..., Findings]
) -> None:
    """`use`, `enable`, the part it is for and the spelling change nothing."""
    assert [k.kind for k in find(f"{name}: true\n").knobs] == [kind]


@pytest.mark.parametrize(
    "text",
    [
        "compile_kernels: true",
        "attention: true",
        "attention_type: additive",
        "attention_mechanism: location",
        "num_env_steps: 1000000",
        "recompute_logprob: true",
        "disable_nhwc: true",
    ],
)
def test_what_only_has_the_word_of_a_switch_is_none(
    text: str, kinds: Callable[..., dict[str, str]]
) -> None:
    assert kinds(text + "\n") == {}


@pytest.mark.parametrize("value", ["flash", "CUDNN", "sdpa", "flash_attention_2"])
def test_an_attention_that_is_called_after_an_implementation_is_a_choice_of_it(
    value: str, kinds: Callable[..., dict[str, str]]
) -> None:
    """`attention_mechanism: flash` chooses a kernel; `additive` is part of the network."""
    assert kinds(f"attention_mechanism: {value}\n") == {"attention_mechanism": "attention_impl"}


@pytest.mark.parametrize("value", ["BFLOAT_16", "torch.bfloat16", "BF_16", "jnp.float32", "fp-16"])
def test_a_type_is_known_in_every_spelling(
    value: str, kinds: Callable[..., dict[str, str]]
) -> None:
    assert kinds(f"train_dtype: {value}\n") == {"train_dtype": "precision"}


@pytest.mark.parametrize(
    ("text", "path", "kind"),
    [
        (
            "learning_rate: {initial: 0.1, decay_factor: 0.5}",
            "learning_rate.initial",
            "learning_rate",
        ),
        ("lr: {base: 0.1, warmup: 5}", "lr.base", "learning_rate"),
        ("batch_size: {value: 8, help: items}", "batch_size.value", "batch_size"),
        ("num_workers: {default: 8, type: int}", "num_workers.default", "num_workers"),
        ("batch_size: {train: 8}", "batch_size.train", "batch_size"),
        ("num_workers: {val: 8}", "num_workers.val", "num_workers"),
        ("train: {compile: {flag: false}}", "train.compile.flag", "compile"),
        ("learning_rate: {0: 0.1, 30: 0.05}", "learning_rate.0", "learning_rate"),
    ],
)
def test_a_value_is_what_the_key_above_it_names(
    text: str, path: str, kind: str, kinds: Callable[..., dict[str, str]]
) -> None:
    assert kinds(text + "\n") == {path: kind}


@pytest.mark.parametrize(
    "text",
    [
        "batch_size: {value: 8, min: 2, max: 64}",
    ],
)
def test_bounds_records_and_ramps_are_no_value(
    text: str, kinds: Callable[..., dict[str, str]]
) -> None:
    """Beside bounds it is a search space, beside `desc` a record; only rates have a first value."""
    assert kinds(text + "\n") == {}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("training: {scheduler: {initial_lr: 0.1}}\n", "learning_rate"),
        ("max_lr: 0.1\nmin_lr: 0.01\n", "learning_rate"),
    ],
)
def test_a_look_alike_by_its_place_is_the_setting_where_no_other_is(
    text: str, kind: str, kinds: Callable[..., dict[str, str]]
) -> None:
    assert kind in kinds(text).values()
    other = {"epochs": "train: {max_epochs: 5}\n", "learning_rate": "optim: {lr: 0.5}\n"}[kind]
    assert [path for path, found in kinds(text + other).items() if found == kind] == [
        {"epochs": "train.max_epochs", "learning_rate": "optim.lr"}[kind]
    ]


@pytest.mark.parametrize(
    ("text", "is_knob"),
    [
        ("sampler: {type: Triplet, batch_size: [8, 16]}", True),
        ("loader: {batch_size: [8, 16]}", False),
    ],
)
def test_what_a_sampler_makes_a_batch_of_is_no_sweep(
    text: str, is_knob: bool, has: Callable[[str, str], bool]
) -> None:
    assert has(text, "batch_size") is is_knob


@pytest.mark.parametrize(
    ("text", "is_knob"),
    [
        ("train: {zork_batch: 2048}", True),
        ("train: {zork_batch: 18}", False),
        ("train: {batch_zork: 2048}", False),
        ("batch_size_zork: 8 # number of environments in parallel", False),
        ("lr: 0.1\nreduced_batch: 1", False),
        ("inner: {inner_batch_size: 4}", False),
    ],
)
def test_a_round_number_speaks_for_a_batch_and_the_comment_may_speak_against(
    text: str, is_knob: bool, has: Callable[[str, str], bool]
) -> None:
    """A strange word before `batch` is forgiven where the value is a power of two."""
    assert has(text, "batch_size") is is_knob


IMAGE_SIZES = [
    ("data: {image_size: 64, num_classes: 10}", True),
    ("model: {image_size: 64, num_classes: 10}", False),
    ("data: {image_size: 64, channels: 3}", False),
    ("image_size: 84\naugment: true", True),
    ("image_size: 84\ndata_root: data\nworkers: 4", True),
    ("image_size: 84\ndata_root: data\nlatent_dim: 4", False),
    ("image_size: 84", False),
    ("mesh: {resolution: 512}", False),
    ("camera_resolution: [128, 128]", False),
    ("data: {train_size: 150000}", False),
    ("data: {crop: '0, 384, 0, 384'}", False),
    ("crop_image_width: 256", True),
    ("train: {train_h: 641, train_w: 641, val_size: 641}", True),
]


@pytest.mark.parametrize(("text", "is_knob"), IMAGE_SIZES)
def test_a_size_is_of_the_images_only_where_its_place_says_so(
    text: str, is_knob: bool, has: Callable[[str, str], bool]
) -> None:
    """Beside classes of the data and beside augmentations yes; beside a network's sizes no."""
    assert has(text, "image_size") is is_knob


@pytest.mark.parametrize(
    "text",
    [
        "track: {lr: 0.3}",
        "lr_beta1: 0.9",
        "lr_epsilon: 1.0e-8",
        "encoder_lr_multiply: 1",
        "text_lr_rate: 0.4",
        "pool: {max_workers: 8}",
        "visualization: {num_workers: 36, n_samples: 10}",
        "train_dataset: {args: {num_workers: 36, cache_num: 8}}",
        "s3_upload: {numworkers: 16}",
        "params: {level: 16}",
        "zork: {batch_size: 4, max_frames: 16}",
        "block_size: 512\nsampling_rate: 44100",
        "template_generator: {max_length: 20}",
        "lr_decays: 0.98",
        "zork: {batch_size: 4, batch_length: 64}",
        "zork: {batch_size: 4, max_tokens: 512}",
        "report_batch: 1",
        "env_name: zork\ntest_num_steps: 101",
        "n_mini_batch: 8",
        "num_minibatches: 4",
        "n_timesteps_per_minibatch: 32",
        "n_workers: 32\nworker_steps: 512",
        "zork: {batch_size: 4, batch_max_length: 34}",
        "early_stopping: {epochs: 10}",
        "noise_schedule: {n_iter: 1000}",
        "dataset: {num_proc: 4}",
        "max_length: null",
        "zork_batch: 16 # every 16 batches",
        "model: {iter_size: 3, lr: null}",
        "actor: {update_freq: 2}",
        "eval_accumulation_steps: 4",
        "batch_num: 30",
        "filters: {resolution: 9.0}",
        "voxel_size: 0.1\nresolution: 512",
        "sample_steps: 300\nsave_every: 5",
        "sampler: {dataset: {sampling_step: 1}}",
        "hpo: {num_workers: 4}",
        "device: {worker_num: 10}\ntrain: {client_num_in_total: 10}",
    ],
)
def test_what_is_named_like_it_but_of_another_thing_is_no_knob(
    text: str, kinds: Callable[..., dict[str, str]]
) -> None:
    found = kinds(text + "\n")
    assert [kind for path, kind in found.items() if path != "zork.batch_size"] == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("train: {batch_size: 8, subdivision: 2}", "grad_accum"),
        ("acml_steps: 4", "grad_accum"),
        ("nr_gpus: 8", "num_devices"),
        ("data: {gpus: 2}", "num_devices"),
        ("img_wh: [256, 256]", "image_size"),
        ("steps: 25\nguidance_scale: 7.5", "timesteps"),
        ("loader: {w: 432, h: 240}", "image_size"),
        ("INPUT_SIZE: 256 # input image size for training", "image_size"),
        ("augmentation: {image_shape: [384, 640]}", "image_size"),
        ("scaling_lr: 0.005", "learning_rate"),
        ("base_lr: 0.0\nmax_lr: 0.01", "learning_rate"),
        ("sampling_batch_size_per_card: 8", "batch_size"),
        ("fine_tune: {batch_size: 8}", "batch_size"),
        ("compile_zorkformer: true", "compile"),
        ("recompute_grad: false", "grad_checkpoint"),
        ("fp16: {level: O1}", "precision"),
        ("optimizer: {mixed_precision: false}", "precision"),
    ],
)
def test_other_words_for_the_same_are_known(
    text: str, kind: str, has: Callable[[str, str], bool]
) -> None:
    assert has(text, kind)


def test_a_comment_that_calls_something_else_unused_says_nothing(
    kinds: Callable[..., dict[str, str]],
) -> None:
    text = "batch_size: 8 # larger since sequence packing is not used\n"
    assert kinds(text) == {"batch_size": "batch_size"}


def test_a_subdivision_of_a_surface_accumulates_nothing(
    kinds: Callable[..., dict[str, str]],
) -> None:
    """The word speaks only beside a batch."""
    assert kinds("mesh: {subdivisions: 3}\n") == {}


OTHER_SPELLINGS = [
    ("lrate: 0.001", {"lrate": "learning_rate"}),
    ("lrate_decay: 250", {}),
    ("accumulative_counts: 4", {"accumulative_counts": "grad_accum"}),
    ("recompute_activations: true", {"recompute_activations": "grad_checkpoint"}),
    ("decoder: {use_flash: true}", {"decoder.use_flash": "attention_impl"}),
    ("camera: {flash: true}", {}),
    ("attack: {steps: 2000, log_every: 100}", {}),
    ("dataloader_prefetch_qlen: 8", {"dataloader_prefetch_qlen": "prefetch_factor"}),
]


@pytest.mark.parametrize(("text", "found"), OTHER_SPELLINGS)
def test_other_spellings_of_the_same_are_known(
    text: str, found: dict[str, str], kinds: Callable[..., dict[str, str]]
) -> None:
    assert kinds(text + "\n") == found
