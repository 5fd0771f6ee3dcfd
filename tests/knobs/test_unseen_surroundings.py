"""What stands around a name: what configs of unseen frameworks were misread by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.knobs import Findings


@pytest.mark.parametrize(
    ("text", "path", "kind"),
    [
        ("training_size: [96, 96, 96] # training crop size", "training_size", "image_size"),
        ("training_size: [96, 96, 96]", "training_size", None),
        ("# of 8 gpus\nbench: true # let cuDNN choose", "bench", "cudnn_benchmark"),
        ("bench: true", "bench", None),
    ],
)
def test_a_comment_speaks_for_the_setting_beside_it(
    text: str, path: str, kind: str | None, kinds: Callable[..., dict[str, str]]
) -> None:
    """Behind a list too, where it is the comment of the last element."""
    assert kinds(text + "\n").get(path) == kind


def test_a_constraint_behind_a_list_is_kept(find: Callable[..., Findings]) -> None:
    (knob,) = find("crop_size: [96, 96] # must be divisible by 32\n").knobs
    assert not knob.editable
    assert "must be divisible by 32" in knob.why


SECTIONS = [
    ("model: {max_steps: 9000}", {}),
    (
        "data_transformer: {input_size: [96, 96]}",
        {"data_transformer.input_size": "image_size"},
    ),
    ("transformer: {input_size: [96, 96]}", {}),
    ("world_model: {grad_acc_steps: 2}", {"world_model.grad_acc_steps": "grad_accum"}),
    ("model: {update_freq: 2}", {}),
    ("ransac: {num_iterations: 1000}", {}),
    ("generator: {max_iter: 5}", {}),
    ("resize: {min_side_length: 320}", {"resize.min_side_length": "image_size"}),
    ("lr: {min_side_length: 320}", {}),
]


@pytest.mark.parametrize(("text", "wanted"), SECTIONS)
def test_a_section_is_what_all_of_its_name_says(
    text: str, wanted: dict[str, str], kinds: Callable[..., dict[str, str]]
) -> None:
    """What trains a model is no part of it, what transforms data no network."""
    assert kinds(text + "\n") == wanted


@pytest.mark.parametrize(
    ("text", "path", "is_knob"),
    [
        ("zork_epochs: 4\nbatch_size: 8", "zork_epochs", False),
        ("val_epochs: 4\nval_batch_size: 8", "val_epochs", False),
        ("zork_block_size: 512\nzork_width: 8", "zork_block_size", False),
    ],
)
def test_a_strange_word_is_forgiven_where_it_names_a_stage_of_training(
    text: str, path: str, is_knob: bool, kinds: Callable[..., dict[str, str]]
) -> None:
    assert (path in kinds(text + "\n")) is is_knob


@pytest.mark.parametrize("key", ["key", "type", "_target_"])
@pytest.mark.parametrize("inside", ["init: {kwargs: {size: 96}}", "params: {size: 96}", "size: 96"])
def test_arguments_may_lie_two_levels_below_what_is_made_of_them(
    key: str, inside: str, kinds: Callable[..., dict[str, str]]
) -> None:
    found = kinds(f"steps: [{{{key}: some.library.RandomCrop, {inside}}}]\n")
    assert list(found.values()) == ["image_size"]


PATCHES = [
    ("augmentation: {patch_size: [96, 96, 64]}", True),
    ("augmentation: {patch_size: [4, 4]}", False),
    ("model: {patch_size: [96, 96]}", False),
    ("patch_size: 96", False),
    ("width: 512\nheight: 384\nbatch_size: 8", True),
    ("width: 512\nheight: 384\nbatch_size: 8\ndepth: 4", False),
    ("width: 512\nheight: 384", False),
    ("width: 512\nbatch_size: 8", False),
    ("window: {width: 512, height: 384, batch_size: 8}", False),
    ("train: {size: 256, crop: random}", True),
    ("train: {size: 256}", False),
    ("data: {orig_img_size: [720, 1280]}", False),
    ("generation: {zork_resolution: 128}\ndata: {pointcloud_n: 3000}", False),
    ("generation: {zork_resolution: 128}", True),
]


@pytest.mark.parametrize(("text", "is_knob"), PATCHES)
def test_the_size_of_what_is_cut_is_one_of_images(
    text: str, is_knob: bool, has: Callable[[str, str], bool]
) -> None:
    """A patch that is cut in augmentation, not one that a network makes a token of."""
    assert has(text, "image_size") is is_knob


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("a: {h: &h 360, w: &w 640}\ntrain: {data: {img_size: [*h, *w]}}\n", set()),
        ("train: {data: {img_size: [360, 640]}}\n", {"train.data.img_size"}),
    ],
)
def test_a_list_of_aliases_has_no_value_of_its_own(
    text: str, paths: set[str], find: Callable[..., Findings]
) -> None:
    found = find(text)
    assert {knob.path for knob in found.knobs} == paths
    assert paths or any("train.data.img_size" in link.paths for link in found.links)


PROGRAM = """\
import os

world_size = int(os.getenv("WORLD_SIZE", 1))
cfg = dict(use_checkpoint=True, batch_size=4 * 8)
net = dict(use_checkpoint=cfg["use_checkpoint"], train=dict(lr=0.1))
"""


def test_what_only_a_run_can_tell_is_a_reference_and_no_setting(
    find: Callable[..., Findings],
) -> None:
    found = find(PROGRAM, "python")
    kinds = {knob.path: knob.kind for knob in found.knobs}
    assert kinds == {
        "cfg.use_checkpoint": "grad_checkpoint",
        "cfg.batch_size": "batch_size",
        "net.train.lr": "learning_rate",
    }
    computed = {path for link in found.links if "computed" in link.why for path in link.paths}
    assert computed == {"world_size", "net.use_checkpoint"}


BESIDE = [
    # the rate of a part, before or behind the part
    ("lr: 0.1\nlr_backbone: 0.01", "lr_backbone", None),
    ("lr: 0.1\nbackbone_lr: 0.01", "backbone_lr", None),
    ("lr_backbone: 0.01", "lr_backbone", "learning_rate"),
    # a section of a schedule
    ("train: {lr: 0.1}\ncyclic_lr: {base_lr: 0.01}", "cyclic_lr.base_lr", None),
    ("one_cycle: {base_lr: 0.01}", "one_cycle.base_lr", "learning_rate"),
    # the last epochs of a training whose whole length stands beside
    ("max_epochs: 420\nstage2_num_epochs: 30", "stage2_num_epochs", None),
    # the loader's own beside
    ("num_workers: 1\nnum_dataloader_workers: 10", "num_workers", None),
    ("num_workers: 1\nbatch_size: 10", "num_workers", "num_workers"),
    # environments that run at once
    ("eval: {n_episodes: 50, batch_size: 50}", "eval.batch_size", None),
    # a length in steps beside what is done every so many
    ("steps: 50\nbatch_size: 8", "steps", None),
    ("max_tokens: 4096\nupdate_freq: 8", "max_tokens", "batch_size"),
    ("prediction_length: 24\nnum_parallel_samples: 100", "num_parallel_samples", "sample_num"),
]


OTHERS = [
    ("num_speakers_in_batch: 64", "num_speakers_in_batch", "batch_size"),
    ("batch_num_samples: 64", "batch_num_samples", "batch_size"),
    ("num_classes_in_batch: 64", "num_classes_in_batch", None),
    ("max_sentences: 8\nmax_valid_sentences: -1", "max_valid_sentences", "batch_size"),
    ("max_sentences: 8\nmax_valid_tokens: -1", "max_valid_tokens", "batch_size"),
    ("parallel: {num_workers: 2, num_cpus: 8}", "parallel.num_workers", None),
    ("parallel: {num_workers: 2}", "parallel.num_workers", "num_workers"),
    ("num_workers: 2\nnum_cpus: 8\ntrain_batch_size: 8", "num_workers", "num_workers"),
    ("generator_workers: 8", "generator_workers", None),
    ("max_accumulations: 2000", "max_accumulations", None),
    ("zork_learn_rate: 0.1", "zork_learn_rate", "learning_rate"),
    ("lr_rate: 0.0001", "lr_rate", "learning_rate"),
    ("lr_rate: 0.4", "lr_rate", None),
    ("schedulers: {lr: {values: [0.1, 0.01]}}", "schedulers.lr.values", "learning_rate"),
    ("lr: {values: [0.1, 0.01], distribution: log}", "lr.values", None),
    ("torch_dtype_str: bfloat16", "torch_dtype_str", "precision"),
    ("ref: {torch_dtype: bfloat16, gradient_checkpointing: true}", "ref.torch_dtype", "precision"),
    ("torch_dtype: bfloat16\nbf16: true", "torch_dtype", None),
    ("attn: flash_attention_2", "attn", "attention_impl"),
    ("attn: additive", "attn", None),
    ("sampler: {num_steps_denoising: 4}", "sampler.num_steps_denoising", "timesteps"),
    ("num_samples: 16\nprediction_length: 24", "num_samples", "sample_num"),
    ("num_samples: 16", "num_samples", None),
    ("model: {max_len: 8192, depth: 8}", "model.max_len", None),
    ("engine: {block_size: 16, gpu_memory_utilization: 0.6}", "engine.block_size", None),
    ("aug: {RandomCrop: {height: 416, width: 384}}", "aug.RandomCrop.height", "image_size"),
    ("aug: {CoarseDropout: {height: 32}}", "aug.CoarseDropout.height", None),
    ("crop_shape: [76, 76]", "crop_shape", "image_size"),
    ("policy: {crop_shape: [76, 76]}", "policy.crop_shape", None),
    ("depth: 0.3\ninput_size: [416, 416]\ntest_size: [640, 640]", "input_size", "image_size"),
    ("depth: 0.3\ninput_size: [416, 416]\ntest_size: [640, 640]", "test_size", "image_size"),
    ("input_size: [416, 416]\ntest_size: 0.3", "test_size", None),
    ("depth: 3\ninput_size: [416, 416]", "input_size", None),
    ("input_size_max: 448", "input_size_max", "image_size"),
    ("input_size: 640", "input_size", None),
    ("texture_res: [1024, 1024]", "texture_res", None),
    ("size_divisibility: 512", "size_divisibility", None),
    ("train: {size: 1024}", "train.size", None),
    ("gradient_steps: 64", "gradient_steps", None),
    ("diffusion: ddpm\nsample_steps: 50\nsave_freq: 10", "sample_steps", "timesteps"),
    ("epochs: 9\nsample_steps: 50\nsave_freq: 10", "sample_steps", None),
    ("resize_size: {primary: [256, 256]}", "resize_size.primary", "image_size"),
    ("batch_size: {video: 4, image: 16}", "batch_size.image", "batch_size"),
    ("batch_size: {video: 4, min: 1, max: 8}", "batch_size.video", None),
    (
        "learning_rate: {init_value: 0.0, peak_value: 0.1}",
        "learning_rate.peak_value",
        "learning_rate",
    ),
    ("learning_rate_policy: 3e-4", "learning_rate_policy", "learning_rate"),
    ("learning_rate_policy: step", "learning_rate_policy", None),
    ("max_tokens_per_gpu: 4096", "max_tokens_per_gpu", "batch_size"),
    ("num_loaders: 2", "num_loaders", "num_workers"),
    ("prefetch_num_batches: 2", "prefetch_num_batches", "prefetch_factor"),
    ("use_flash_sdp: true", "use_flash_sdp", "attention_impl"),
    ("eval: {steps: 5}\nbetas: [0.9, 0.95]", "eval.steps", None),
    ("eval: {steps: 5}\nguidance_scale: 3", "eval.steps", "timesteps"),
    ("rollout_batch_size: 512\nmax_prompt_length: 2048", "rollout_batch_size", "batch_size"),
    ("rollout_batch_size: 512", "rollout_batch_size", None),
    (
        "micro_batch_size_per_device_for_update: 1",
        "micro_batch_size_per_device_for_update",
        "batch_size",
    ),
    ("update_batch_size_for_zork: 1", "update_batch_size_for_zork", None),
    ("TRAIN_GPUS: 4", "TRAIN_GPUS", "num_devices"),
    ("num_works: 38", "num_works", "num_workers"),
    ("input_size: 224\nmask_ratio: 0.75", "input_size", "image_size"),
    ("epoch_start: 20\nepoch_end: 22", "epoch_start", None),
    ("schedule: {epoch_start: 20, epoch_end: 22}", "schedule.epoch_end", None),
    ("learning_rate_levels: [0.1, 0.01]", "learning_rate_levels", None),
    ("model: {test_cfg: {crop_size: [256, 256]}}", "model.test_cfg.crop_size", "image_size"),
    ("model: {crop_size: [256, 256]}", "model.crop_size", None),
    ("loss: {phase1_epochs: 20}", "loss.phase1_epochs", None),
    ("batch_size: [20, 50, 10]\nweight_decay: [0.1, 0.2, 0.3]", "batch_size", None),
    ("batch_size: [20, 10]\nlevels: [1, 2]", "batch_size", "batch_size"),
    ("sampling: {noise: {total_time_steps: 100}}", "sampling.noise.total_time_steps", "timesteps"),
    ("model: {noise: {total_time_steps: 100}}", "model.noise.total_time_steps", None),
    ("sampling: {number_of_samples: 16}", "sampling.number_of_samples", "sample_num"),
    ("enable_model_compilation: true", "enable_model_compilation", "compile"),
    ("test: {block_size: 20.0}", "test.block_size", None),
    ("models: {a: {max_length: 1024}}", "models.a.max_length", None),
    ("lr: 0.1\nlr_encoder: 0.2", "lr", "learning_rate"),
    ("lr: 0.1\nlr_encoder: 0.2\nlr_decoder: 0.3", "lr", None),
    ("train: {epochs: 9, lr: 0.1}\nppo: {clip_range: 0.1, lr: 0.2}", "train.lr", "learning_rate"),
    ("train: {epochs: 9, lr: 0.1}\nppo: {clip_range: 0.1, lr: 0.2}", "ppo.lr", None),
    ("actor: {optim: {lr: 0.1}}\ngae_lambda: 0.9", "actor.optim.lr", "learning_rate"),
    ("rl: {timesteps: 50000}", "rl.timesteps", None),
    ("base_image_size: [96, 96]", "base_image_size", "image_size"),
    ("inference_resize_short_side: 1024", "inference_resize_short_side", "image_size"),
    ("resize_short_side: 1024", "resize_short_side", None),
    ("sliding_window_patch_size: [512, 512]", "sliding_window_patch_size", "image_size"),
    ("sliding_window: {overlap_size: [64, 64]}", "sliding_window.overlap_size", None),
    ("verify: {workers: 8, batch_size: 4}", "verify.workers", None),
    ("zork_steps: 30000\nlr: 0.1", "zork_steps", None),
    ("warmup_steps: 30000\nwarmup_lr: 0.1", "warmup_steps", None),
    ("preprocess: {size: 256, crop: random}", "preprocess.size", "image_size"),
    ("num_workers: [4, 1]", "num_workers", "num_workers"),
    ("data: {frame_size: 112, num_frames: 16}", "data.frame_size", "image_size"),
    ("data: {frame_size: 512, sample_rate: 16000}", "data.frame_size", None),
    ("im: {h_w: [256, 128]}", "im.h_w", "image_size"),
    ("mask: {im: {h_w: [256, 128]}}", "mask.im.h_w", None),
    ("batch_size: 32\nbatch_image: 4", "batch_image", None),
    ("max_length: 24\nnum_beams: 3", "max_length", None),
    ("dataset: {chunk_height: 132, chunk_width: 132}", "dataset.chunk_height", "image_size"),
    ("batches_per_backprop: 32", "batches_per_backprop", "grad_accum"),
    ("kfac_update_freq: 50\nlr: 0.1", "kfac_update_freq", None),
    ("max_workers: 2\nbatch_size: 4\nrollout_retries: 2", "max_workers", None),
    ("x_batch_size: 2 # multiplier", "x_batch_size", None),
    ("lr: 0.1\nft_lr: 0.2\nft_epochs: 9", "ft_lr", "learning_rate"),
    ("lr: 0.1\nft_lr: 0.2", "ft_lr", None),
    ("training: {steps: 10, method: midpoint}", "training.steps", None),
    ("train_shapes: [320, 320]", "train_shapes", "image_size"),
    ("learing_rate: 0.1", "learing_rate", "learning_rate"),
    ("gpus: {value: 1}", "gpus.value", "num_devices"),
    ("training: {random_crops: 512}", "training.random_crops", None),
    ("training: {random_crop: 512}", "training.random_crop", "image_size"),
    ("training: {crop_size_m: 35}", "training.crop_size_m", None),
    ("cut: {max_long_edge: 100.0}", "cut.max_long_edge", None),
    ("replay_buffer: {target_size: 300}", "replay_buffer.target_size", None),
    ("infer_args: {width: 512, height: 512}", "infer_args.width", "image_size"),
    ("data: {batch_size: 4, num_workers: 2}\nclip_range: 1", "data.batch_size", "batch_size"),
    ("train: {num_workers: 12, batch_size: 4}\nnum_clients: 9", "train.num_workers", "num_workers"),
    ("thread_num: 4\nbsize: 500", "thread_num", "num_workers"),
    ("thread_num: 4", "thread_num", None),
    ("batch_size_list: [14, 7]", "batch_size_list", None),
    ("model: {epochs: 9, lr: 0.1, warmup_epochs: 1}", "model.epochs", None),
    ("model: {epochs: 9, depth: 4}", "model.epochs", None),
]


@pytest.mark.parametrize(("text", "path", "kind"), [*BESIDE, *OTHERS])
def test_the_words_and_what_stands_beside_decide(
    text: str, path: str, kind: str | None, kinds: Callable[..., dict[str, str]]
) -> None:
    assert kinds(text + "\n").get(path) == kind
