"""Names that no list has: taken apart into words, and weighed with what stands around them."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest

from advisor.knobs import vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.knobs import Findings

MADE_UP = {
    "batch_size": (
        "train_batch_size0 per_proc_batch_size sw_batch_size max_val_batch_size optBatchSize "
        "BATCH_SIZE_STAGE_2 gpuBatchSize unlabelledBatchSize samplesPerBatch log_prob_micro_bs "
        "dis_batch_size imgs_per_card batch_size_source LOADER_BATCH minibatchsize0"
    ),
    "num_workers": (
        "num_loading_workers dl_workers nworkers0 numDataloadingWorkers LOADER_THREADS "
        "n_dl_workers "
        "dataLoadingThreads workers_for_training workersCount valLoaderWorkers"
    ),
    "grad_accum": (
        "batch_accumulation_per_replica accumulate_batches accumulated_grads gradAccumEvery "
        "ACCUMULATION_ITERS n_grad_acc_steps backward_passes_per_step microbatches_per_step"
    ),
    "learning_rate": "wav2vec_lr LR_POSE pose_learning_rate peakLR gammanet_lr lr_wav2vec",
    "pin_memory": "loader_pin_mem dataPinnedMemory PIN_MEM_TRAIN",
    "prefetch_factor": "loader_prefetch_factor prefetchPerWorker DL_PREFETCH prefetch_depth",
    "persistent_workers": "dl_persistent_workers keepWorkersAlive reuse_workers",
    "precision": "usefp16 FP16_RUN enableAMP unet_dtype text_encoder_dtype vae_dtype amp_training",
    "image_size": "random_crop validation_resolution processing_resolution train_h imgSize2",
    "timesteps": "validation_num_inference_steps numSamplingSteps DENOISING_STEPS ddim_steps_val",
}
VALUES = {
    "pin_memory": "true",
    "persistent_workers": "true",
    "precision": "fp16",
    "learning_rate": "0.01",
    "image_size": "256",
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, some in MADE_UP.items() for name in some.split()]
)
def test_a_name_is_known_by_its_words(kind: str, name: str, find: Callable[..., Findings]) -> None:
    """No rule names them; the words do."""
    assert [k.kind for k in find(f"{name}: {VALUES.get(kind, 8)}\n").knobs] == [kind]


STYLES: dict[str, Callable[[list[str]], str]] = {
    "snake": "_".join,
    "upper": lambda words: "_".join(words).upper(),
    "kebab": "-".join,
    "camel": lambda words: words[0] + "".join(w.capitalize() for w in words[1:]),
    "numbered": lambda words: "_".join(words) + "1",
}


@pytest.mark.parametrize("style", STYLES)
def test_words_are_found_in_every_way_to_join_them(
    style: str, find: Callable[..., Findings]
) -> None:
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
        kinds = [knob.kind for knob in find(f'"{name}": 8\n').knobs]
        assert kinds == [kind], name


LOOK_ALIKES = [
    "batch_norm_momentum: 8",
    "train_batch_multiple: 8",
    "log_batch_interval: 100",
    "num_classes_in_batch: 64",
    "batches_per_epoch: 500",
    "lr_layer_decay_step: 30",
    "resolution_milestones: [200, 300]",
    "gradient_checkpointing_backend: torch",
    "train: {fixbase_epoch: 10}",
    "gan_lr_gamma: 0.5",
    "fp16_init_scale: 16",
    "ray_worker_count: 8",
    "accumulate_grad_in_fp32: true",
    "allreduce_post_accumulation: true",
    "forward_prefetch_layers: 2",
    "encoder: {feature_map_size: 64}",
    "test: {epoch: 300}",
    "profiler: {nb_epoch: 3}",
    "no_pin_mem: true",
    "worker_timeout: 60",
    "prefetch_bucket: 5",
]


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_a_word_that_speaks_against_it_outweighs_the_others(
    text: str, kinds: Callable[..., dict[str, str]]
) -> None:
    assert kinds(text + "\n") == {}


def test_the_reason_names_the_words_and_their_weights(find: Callable[..., Findings]) -> None:
    found = find("loader: {sw_batch_size: 4}\nhead: {batch_drop: 2}\n")
    assert "`batch size` in its name +6, under `loader` +1" in found.knobs[0].why
    (trap,) = found.traps
    assert "`batch` and `drop` in its name -6" in trap.why


def test_a_name_that_barely_suffices_says_so(find: Callable[..., Findings]) -> None:
    (weak,) = find("my_zork_batch_size_quux: 8\n").knobs
    assert "barely enough" in weak.why


TRANSFORMS = """\
train:
  transforms:
    - {type: Resize, size: [640, 640]}
    - {type: RandomErasing, size: [64, 64]}
    - {type: SanitizeBoxes, min_size: 16}
val_pipeline:
  - class_path: some.library.CenterCrop
    init_args: {size: 224}
loaders: {train: {transformer: {raw: [{name: CropToFixed, size: [256, 256]}]}}}
model: {type: ResizingNet, backbone: {type: Swin, size: 224}}
"""


def test_what_a_mapping_calls_itself_says_what_its_size_is(find: Callable[..., Findings]) -> None:
    """`{type: Resize, size: ...}` is an image size; a size of a network or a mask is none."""
    assert {knob.path for knob in find(TRANSFORMS).knobs if knob.kind == "image_size"} == {
        "train.transforms[0].size",
        "val_pipeline[0].init_args.size",
        "loaders.train.transformer.raw[0].size",
    }


@pytest.mark.parametrize(
    ("comment", "is_used"),
    [
        ("not used", False),
        ("unused", False),
        ("no longer used, see dataloader", False),
        ("has no effect", False),
        ("not used if dynamic batching is on", True),
        ("used by the validation loader", True),
    ],
)
def test_a_setting_said_not_to_be_used_is_no_knob(
    comment: str, is_used: bool, find: Callable[..., Findings]
) -> None:
    found = find(f"batch_size: 8 # {comment}\n")
    assert bool(found.knobs) is is_used
    assert bool(found.traps) is not is_used


@pytest.mark.parametrize(
    ("value", "is_knob"), [("[1, 2, 4, 8]", False), ("[8]", True), ("[8, 5, 4]", True)]
)
def test_a_sweep_of_batch_sizes_is_no_one_setting(
    value: str, is_knob: bool, find: Callable[..., Findings]
) -> None:
    """Rising sizes are tried one after the other; falling ones follow a growing image."""
    assert bool(find(f"batch_sizes: {value}\n").knobs) is is_knob


def test_an_image_size_that_the_model_has_too_must_agree_with_it(
    find: Callable[..., Findings],
) -> None:
    found = find("unet: {image_size: 256}\ndata: {train: {image_size: 256}}\n")
    assert not found.knobs
    assert {trap.path for trap in found.traps} == {"unet.image_size", "data.train.image_size"}


@pytest.mark.parametrize(
    ("text", "unit", "scope"),
    [
        ("frames_per_batch: 2000\n", "frame", "device"),
        ("per_proc_batch_size: 4\n", "sample", "device"),
        ("log_prob_micro_batch_size: 4\n", "sample", "micro"),
        ("effective_batch_size: 64\n", "sample", "global"),
        ("batch_seconds: 100\n", "second", "device"),
    ],
)
def test_words_tell_what_a_batch_counts_and_who_shares_it(
    text: str, unit: str, scope: str, find: Callable[..., Findings]
) -> None:
    (knob,) = find(text).knobs
    assert (knob.unit, knob.scope) == (unit, scope)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("maxbatchsize0", ("max", "batch", "size")),
        ("imgsz", ("img", "size")),
        ("fp16_run", ("fp16", "run")),
        ("nworkers", ("n", "worker")),
        ("amplitude", ("amplitude",)),
        ("example", ("example",)),
    ],
)
def test_glued_words_are_parted_only_where_all_of_them_are_known(
    name: str, words: tuple[str, ...]
) -> None:
    assert vocabulary.words_in(name) == words


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        (
            "optim: {schedule_of_rate: {learning_rate: 0.1}}\n",
            {"optim.schedule_of_rate.learning_rate"},
        ),
        (
            "optim: {lr: 0.2, schedule_of_rate: {learning_rate: 0.1}}\n",
            {"optim.lr"},
        ),
    ],
)
def test_a_rate_in_a_schedule_is_the_rate_only_where_no_other_is(
    text: str, paths: set[str], find: Callable[..., Findings]
) -> None:
    assert {knob.path for knob in find(text).knobs} == paths


def test_a_bare_size_of_a_preprocessor_is_that_of_its_images(
    kinds: Callable[..., dict[str, str]],
) -> None:
    assert kinds("im_preprocessor: {params: {size: 256, phase: train}}\n") == {
        "im_preprocessor.params.size": "image_size"
    }
