"""Shapes of settings that configs of frameworks nobody here had seen were missed by.

Each row is a document, a path, and the kind that is there; None for a look-alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT_IN_MEMORY = [
    ("use_cache: true\nbatch_size: 2", "use_cache", None),
    ("dataset: {pre_load_noise: true, num_workers: 36}", "dataset.num_workers", None),
]
LENGTHS_OF_TRAINING = [
    ("zork: {steps: '5e1'}", "zork.steps", None),
    ("schedule: {steps: 500000}", "schedule.steps", None),
    ("local_update_steps: 4", "local_update_steps", None),
    ("update_steps: 90\nbatch_size: 2", "update_steps", None),
    ("scheduler: {t_max: 9000}\nbuffer_size: 32", "scheduler.t_max", None),
    ("data_module: {max_epochs: 9}\ntrainer: {max_epochs: 3}", "data_module.max_epochs", None),
    ("lr: 0.1\nnoise_zork: 1\nnum_steps: 1000", "num_steps", None),
    ("train: {epoch: 20}\nbackbone: {train_epoch: 10}", "backbone.train_epoch", None),
    ("train: {epoch: 20, lr_warmup: {epoch: 5}}", "train.lr_warmup.epoch", None),
    ("train: {num_steps: 400, optimizer_zork: 1}\nbeta_start: 1", "train.num_steps", None),
    ("model: {n_iterations: 90000, lr: 0.1, warmup_steps: 9}", "model.n_iterations", None),
    ("model: {n_iterations: 90, lr: 0.1}", "model.n_iterations", None),
    ("max_iterations: 10\nepochs: 3", "max_iterations", None),
    ("zork: {noptepochs: 10, gamma: 0.9}", "zork.noptepochs", None),
    ("scheduler: {max_iterations: 9000}\nepochs: 2", "scheduler.max_iterations", None),
]
PRODUCTS = [
    ("general: {molecules_to_generate: 500}", "general.molecules_to_generate", "sample_num"),
    ("training: {demo: {num_demos: 4}}", "training.demo.num_demos", "sample_num"),
    ("validation: {diffusion_samples: 5}", "validation.diffusion_samples", "sample_num"),
    ("fid: {num_samples: 1000}", "fid.num_samples", "sample_num"),
    ("eval: {num_samples: 1000}\nmodel: {sigma_max: 50}", "eval.num_samples", "sample_num"),
    ("eval: {num_samples: 1000}", "eval.num_samples", None),
    ("n_ensemble_members: 4", "n_ensemble_members", "sample_num"),
    ("num_return_sequences: 4", "num_return_sequences", "sample_num"),
    ("num_fid_samples: 5000", "num_fid_samples", "sample_num"),
    ("poses_per_complex: 10", "poses_per_complex", "sample_num"),
    ("data: {structures_per_complex: 10}", "data.structures_per_complex", None),
    ("samples: {samples_per_length: 10}", "samples.samples_per_length", "sample_num"),
    ("ensemble_size: 5\nsampling: {zork: 1}", "ensemble_size", "sample_num"),
    ("ensemble_size: 5", "ensemble_size", None),
    ("ensemble_size: 5\nelite_size: 5\nnoise: 1", "ensemble_size", None),
    ("mols_to_sample: 64", "mols_to_sample", "sample_num"),
    ("zork_fid_n: 5000", "zork_fid_n", "sample_num"),
]
LENGTHS_OF_ITEMS = [
    ("sample_size: 65536", "sample_size", None),
    ("train: {sampling_rate: 8000, num_samples: 24}", "train.num_samples", None),
    ("t5: {max_length: 512}", "t5.max_length", None),
    ("prompt: {type: TextEmbedder, max_length: 77}", "prompt.max_length", None),
    ("max_text_len: 25\nbatch_size: 2\ncharacter_zork: a", "max_text_len", None),
]
PRECISIONS = [
    ("model: {audio_precision: fp16}", "model.audio_precision", "precision"),
    ("model: {transformer_dtype: bfloat16}", "model.transformer_dtype", "precision"),
    ("optim_zork: {dtype: float16, loss_scale: 1}", "optim_zork.dtype", "precision"),
    ("optim_zork: {dtype: float16}", "optim_zork.dtype", None),
    ("bf16: {bf16: true, enabled: true}", "bf16.bf16", None),
    ("bf16: {bf16: true, enabled: true}", "bf16.enabled", "precision"),
    ("activations_dtype: bfloat16", "activations_dtype", "precision"),
    ("weight_dtype: float16", "weight_dtype", "precision"),
    ("weight_dtype: float16\nprecision: bf16", "weight_dtype", None),
    ("vae: {weight_dtype: float32}", "vae.weight_dtype", None),
    ("trainer: {mp: 'p=f32,c=bfloat16'}", "trainer.mp", "precision"),
    ("trainer: {mp: 2}", "trainer.mp", None),
]
SPEED = [
    ("use_amp: false # do not used mixed precision", "use_amp", "precision"),
    ("use_amp: false # not used", "use_amp", None),
    ("training: {generation_timesteps: 12}", "training.generation_timesteps", "timesteps"),
    ("benchmark: false\ndeterministic: false", "benchmark", "cudnn_benchmark"),
    ("benchmark: false", "benchmark", None),
    ("fused_rmsnorm: true", "fused_rmsnorm", "fused_kernels"),
    ("adam_fused: true", "adam_fused", "fused_kernels"),
    ("allowTF32: true", "allowTF32", "tf32"),
    ("optimization: {kwargs: {fused: true}}", "optimization.kwargs.fused", "fused_kernels"),
    ("rms_norm_fusion: false", "rms_norm_fusion", "fused_kernels"),
    ("use_liger_zork: true", "use_liger_zork", "fused_kernels"),
    ("act_ckpt_settings: [8, 100]", "act_ckpt_settings", "grad_checkpoint"),
    ("net: {checkpoint_level: 0}", "net.checkpoint_level", "grad_checkpoint"),
    ("model: {zork: {checkpointed: true}}", "model.zork.checkpointed", "grad_checkpoint"),
    ("run: {checkpointed: true}", "run.checkpointed", None),
    ("vit_grad_ckpt: true\nvit_ckpt_layer: 4", "vit_ckpt_layer", "grad_checkpoint"),
    ("vit_ckpt_layer: 4", "vit_ckpt_layer", None),
    ("attention: zork_flash", "attention", "attention_impl"),
    ("attention: zork_linear", "attention", None),
    ("model: {zork: {flash: false}}", "model.zork.flash", "attention_impl"),
    ("augment: {flash: false}", "augment.flash", None),
    (
        "generation_config: {params: {ldm_steps: 200}}",
        "generation_config.params.ldm_steps",
        "timesteps",
    ),
    ("train: {ldm_steps: 200}", "train.ldm_steps", None),
]
COUNTS = [
    ("render: {rand_rays: 512}", "render.rand_rays", "batch_size"),
    ("caching_batch_size: 4\nepochs: 9", "caching_batch_size", None),
    ("first_stage_config: {batchsize: 4}", "first_stage_config.batchsize", None),
    ("data: {micro_num: 4, micro_bsz: 2}", "data.micro_num", "grad_accum"),
    ("data: {micro_num: 4}", "data.micro_num", None),
    ("bz: 8", "bz", "batch_size"),
    ("sequences_per_batch: 8", "sequences_per_batch", "batch_size"),
    ("per_worker_batch_size: 8", "per_worker_batch_size", "batch_size"),
    ("nj: 8\nbatch_size: 2", "nj", "num_workers"),
    ("nj: 8", "nj", None),
    ("n_rays: 1024\nmodel: {render_chunk_size: 8192}", "model.render_chunk_size", "batch_size"),
    ("model: {render_chunk_size: 8192}", "model.render_chunk_size", None),
    ("train_rays: 4096", "train_rays", "batch_size"),
    ("data: {base_batch_size: 8}", "data.base_batch_size", "batch_size"),
    ("data: {base_batch_size: 8, batch_size: 2}", "data.base_batch_size", None),
    ("auto_scale_lr: {base_batch_size: 8}", "auto_scale_lr.base_batch_size", None),
    ("train_batch_size: 8\nvae_batch_size: 1", "vae_batch_size", None),
    ("vae_batch_size: 1", "vae_batch_size", "batch_size"),
    ("gpu_count: 4", "gpu_count", "num_devices"),
    ("hydra: {launcher: {gpus_per_node: 4}}", "hydra.launcher.gpus_per_node", None),
    ("optimizer: {lr: 0.1}\nschedular: {lr: 0.1}", "schedular.lr", None),
    ("optimzer: {lr: 0.1}", "optimzer.lr", "learning_rate"),
    ("net: {layer: {lr: 0.01}}\noptimizer: {lr: 0.1}", "net.layer.lr", None),
    ("net: {layer: {lr: 0.01}}", "net.layer.lr", "learning_rate"),
    ("lr_init: 0.1", "lr_init", "learning_rate"),
    ("lr_init: 0.1\nlr: 0.2", "lr_init", None),
    ("batch_sizes: {256: 8}", "batch_sizes.256", "batch_size"),
    ("train: {base_lr: 0.1, lr: {start_lr: 0.1, end_lr: 0.01}}", "train.lr.start_lr", None),
    ("scheduler: {start_lr: 0.1, end_lr: 0.01}", "scheduler.start_lr", "learning_rate"),
    ("eval_gradient_accumulation_steps: 4", "eval_gradient_accumulation_steps", None),
    ("pbs: {ngpus: 4}", "pbs.ngpus", None),
    ("zk_trainer_devices: 4", "zk_trainer_devices", "num_devices"),
    ("canonical_bs: 64\nlr: 0.1", "canonical_bs", None),
    ("scheduler: {cosine: {max_lr: 0.1}}", "scheduler.cosine.max_lr", "learning_rate"),
    ("scheduler: {cosine: {max_lr: 0.1}}\nlr: 0.2", "scheduler.cosine.max_lr", None),
    (
        "zork: {lr_params: {boundaries: [9], values: [0.1]}}",
        "zork.lr_params.values",
        "learning_rate",
    ),
    ("zork: {lr_params: {min: 0, values: [0.1]}}", "zork.lr_params.values", None),
]
SIDES = [
    ("image_size: 96\nbatch_size: 2\nmodel_version: b", "image_size", "image_size"),
    ("image_size: 96\nbatch_size: 2\nmodel_dim: 8", "image_size", None),
    ("sensor: {img_zork: {width: 1024, height: 64}}", "sensor.img_zork.width", "image_size"),
    ("dataset: {im_size: 520, crop_size: 480}", "dataset.im_size", None),
    ("dataset: {im_size: 520}", "dataset.im_size", "image_size"),
    ("data: {im_size: 9, window_size: 480, window_stride: 99}", "data.window_size", "image_size"),
    ("data: {window_size: 480, window_stride: 99}", "data.window_size", None),
    ("model: {window_size: 480, window_stride: 320}", "model.window_size", None),
    ("training: {img_size: 96}", "training.img_size", "image_size"),
    ("train_res: 256", "train_res", "image_size"),
    ("test: {resize_smallest_side: 256}", "test.resize_smallest_side", "image_size"),
    ("train: {resize_smallest_side: 256}", "train.resize_smallest_side", None),
    ("tta: {resize: 256, use_center_crop: true}", "tta.resize", None),
    ("steps: [{type: Resize, scale: [1280, 768]}]", "steps[0].scale", "image_size"),
    ("steps: [{type: Resize, scale: [0.5, 2.0]}]", "steps[0].scale", None),
    ("steps: [{type: Zork, scale: [1280, 768]}]", "steps[0].scale", None),
    ("validation: {processing_res: 768}", "validation.processing_res", "image_size"),
    ("loaders: {val: {patch_shape: [64, 96, 96]}}", "loaders.val.patch_shape", "image_size"),
    ("model: {val: {patch_shape: [64, 96, 96]}}", "model.val.patch_shape", None),
    ("image_size: 96\nbatch_size: 2\nvit_ckpt_layer: 0", "image_size", "image_size"),
    ("ori_img_w: 1280\nimg_w: 640", "ori_img_w", None),
    ("patch_size: [96, 96, 96]\nval_patch_size: null", "patch_size", "image_size"),
    ("patch_size: [96, 96, 96]", "patch_size", None),
]


@pytest.mark.parametrize(
    ("text", "path", "kind"),
    KEPT_IN_MEMORY
    + LENGTHS_OF_TRAINING
    + PRODUCTS
    + LENGTHS_OF_ITEMS
    + PRECISIONS
    + SPEED
    + COUNTS
    + SIDES,
)
def test_what_stands_around_tells_a_setting_from_its_look_alike(
    text: str, path: str, kind: str | None, kinds: Callable[..., dict[str, str]]
) -> None:
    assert kinds(text + "\n").get(path) == kind


@pytest.mark.parametrize("value", ["0.5", "5"])
def test_a_number_kept_as_text_has_the_range_of_the_number(
    value: str, kinds: Callable[..., dict[str, str]]
) -> None:
    """A side of five pixels is none, quoted or not, and nor is half an image."""
    assert kinds(f"img_size: '{value}'\nbatch_size: 2\n") == {"batch_size": "batch_size"}
