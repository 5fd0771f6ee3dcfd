"""Configs in the shape of many frameworks: exactly these knobs, nothing that looks like one.

Each case is written for this test after the habits of one family of programs: names, nesting and
the look-alikes that stand around the knobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

SCORED = {
    *("batch_size", "num_workers", "grad_accum", "pin_memory", "prefetch_factor"),
    *("persistent_workers", "learning_rate", "precision", "timesteps", "sample_num", "image_size"),
}

SHAPES: dict[str, tuple[str, dict[str, str]]] = {
    "super-resolution by diffusion": (
        """
        name: sr
        phase: train
        gpu_ids: [0]
        datasets:
          train: {mode: HR, r_resolution: 128, l_resolution: 16, batch_size: 4, num_workers: 8}
          val: {mode: LRHR, r_resolution: 128, data_len: 50}
        model:
          unet: {in_channel: 6, inner_channel: 64, channel_multiplier: [1, 2], dropout: 0.2}
          beta_schedule:
            train: {schedule: linear, n_timestep: 2000, linear_start: 1.0e-6, linear_end: 0.01}
            val: {schedule: linear, n_timestep: 2000, linear_start: 1.0e-6, linear_end: 0.01}
          diffusion: {image_size: 128, channels: 3, conditional: true}
        train:
          n_iter: 1000000
          val_freq: 10000
          optimizer: {type: adam, lr: 1.0e-4}
          ema_scheduler: {step_start_ema: 5000, update_ema_every: 1}
        """,
        {
            "datasets.train.r_resolution": "image_size",
            "datasets.train.batch_size": "batch_size",
            "datasets.train.num_workers": "num_workers",
            "datasets.val.r_resolution": "image_size",
            "model.beta_schedule.val.n_timestep": "timesteps",
            "train.optimizer.lr": "learning_rate",
        },
    ),
    "respaced sampler": (
        """
        attention_resolutions: 32,16,8
        class_cond: false
        diffusion_steps: "1000"
        learn_sigma: true
        image_size: 256
        num_channels: 256
        num_samples: 100
        use_checkpoint: false
        use_fp16: true
        timestep_respacing: "250"
        schedule_jump_params: {t_T: 250, n_sample: 1, jump_length: 10}
        data:
          eval:
            faces: {batch_size: 1, image_size: 256, deterministic: true}
        """,
        {
            "use_fp16": "precision",
            "timestep_respacing": "timesteps",
            "data.eval.faces.batch_size": "batch_size",
        },
    ),
    "latent diffusion": (
        """
        model:
          base_learning_rate: 4.5e-06
          target: ldm.models.diffusion.ddpm.LatentDiffusion
          params:
            timesteps: 1000
            num_timesteps_cond: 1
            linear_start: 0.0015
            linear_end: 0.0155
            image_size: 64
            unet_config:
              params: {image_size: 64, in_channels: 3, use_checkpoint: true}
        data:
          params:
            batch_size: 48
            num_workers: 5
            train: {target: ldm.data.Train, params: {size: 256}}
        lightning:
          callbacks: {image_logger: {params: {batch_frequency: 5000, max_images: 8}}}
          trainer: {benchmark: true, accumulate_grad_batches: 2}
        """,
        {
            "model.base_learning_rate": "learning_rate",
            "data.params.batch_size": "batch_size",
            "data.params.num_workers": "num_workers",
            "data.params.train.params.size": "image_size",
            "lightning.trainer.accumulate_grad_batches": "grad_accum",
        },
    ),
    "denoising diffusion, early": (
        """
        data: {dataset: CELEBA, image_size: 64, channels: 3, num_workers: 4}
        model: {type: simple, in_channels: 3, ch: 128, ema_rate: 0.9999}
        diffusion: {beta_schedule: linear, beta_start: 0.0001, beta_end: 0.02,
                    num_diffusion_timesteps: 1000}
        training: {batch_size: 128, n_epochs: 10000, n_iters: 5000000, snapshot_freq: 5000}
        sampling: {batch_size: 64, last_only: true}
        optim: {weight_decay: 0.0, optimizer: Adam, lr: 0.0002, eps: 0.00000001}
        """,
        {
            "data.num_workers": "num_workers",
            "training.batch_size": "batch_size",
            "sampling.batch_size": "batch_size",
            "optim.lr": "learning_rate",
        },
    ),
    "LoRA trainer, graphical": (
        """
        {"train_batch_size": 2, "vae_batch_size": 0, "epoch": 1, "mixed_precision": "bf16",
         "save_precision": "bf16", "full_fp16": false, "gradient_checkpointing": true,
         "gradient_accumulation_steps": "1", "max_resolution": "512,512",
         "learning_rate": 0.0001, "text_encoder_lr": 0.00005, "unet_lr": 0.0001,
         "lr_warmup": 10, "lr_scheduler": "cosine", "max_data_loader_n_workers": "0",
         "persistent_data_loader_workers": false, "num_cpu_threads_per_process": 2,
         "sample_every_n_steps": 0, "batch_size_note": "x", "cache_latents": true}
        """,
        {
            "train_batch_size": "batch_size",
            "mixed_precision": "precision",
            "full_fp16": "precision",
            "gradient_accumulation_steps": "grad_accum",
            "max_resolution": "image_size",
            "learning_rate": "learning_rate",
            "max_data_loader_n_workers": "num_workers",
            "persistent_data_loader_workers": "persistent_workers",
        },
    ),
    "fine-tuning recipes": (
        """
        model_name_or_path: some/model
        stage: sft
        deepspeed: examples/ds_z3_config.json
        cutoff_len: 2048
        preprocessing_num_workers: 16
        dataloader_num_workers: 4
        per_device_train_batch_size: 1
        gradient_accumulation_steps: 2
        learning_rate: 1.0e-5
        num_train_epochs: 3.0
        bf16: true
        per_device_eval_batch_size: 1
        torch_dtype: bfloat16
        max_steps: -1
        output_dir: saves/model
        """,
        {
            "dataloader_num_workers": "num_workers",
            "per_device_train_batch_size": "batch_size",
            "gradient_accumulation_steps": "grad_accum",
            "learning_rate": "learning_rate",
            "bf16": "precision",
            "per_device_eval_batch_size": "batch_size",
        },
    ),
    "llm pretraining with algorithms": (
        """
        max_seq_len: 2048
        train_loader: {name: text, drop_last: true, num_workers: 8, dataset: {shuffle: true}}
        eval_loader: {name: text, num_workers: 6}
        optimizer: {name: adamw, lr: 6.0e-4}
        max_duration: 4800ba
        eval_subset_num_batches: -1
        global_train_batch_size: 256
        device_eval_batch_size: 8
        device_train_microbatch_size: auto
        precision: amp_bf16
        fsdp_config: {sharding_strategy: FULL_SHARD, mixed_precision: PURE, limit_all_gathers: true}
        save_num_checkpoints_to_keep: 1
        """,
        {
            "train_loader.num_workers": "num_workers",
            "eval_loader.num_workers": "num_workers",
            "optimizer.lr": "learning_rate",
            "global_train_batch_size": "batch_size",
            "device_eval_batch_size": "batch_size",
            "device_train_microbatch_size": "batch_size",
            "precision": "precision",
            "fsdp_config.mixed_precision": "precision",
        },
    ),
    "speech recognition toolkit": (
        """
        trainer: {devices: 1, precision: 16, max_epochs: 100, accumulate_grad_batches: 1}
        model:
          train_ds: {manifest_filepath: a.json, batch_size: 16, num_workers: 8, pin_memory: true,
                     max_duration: 16.7, min_duration: 0.1, sample_rate: 16000}
          validation_ds: {batch_size: 8, num_workers: 8, pin_memory: true}
          encoder: {feat_in: 80, n_layers: 17, subsampling_factor: 4, dropout: 0.1}
          optim: {name: adamw, lr: 2.0, sched: {name: Noam, warmup_steps: 10000, min_lr: 1.0e-6}}
          megatron_amp_O2: false
        exp_manager: {exp_dir: null, create_checkpoint_callback: true}
        """,
        {
            "trainer.precision": "precision",
            "trainer.accumulate_grad_batches": "grad_accum",
            "model.train_ds.batch_size": "batch_size",
            "model.train_ds.num_workers": "num_workers",
            "model.train_ds.pin_memory": "pin_memory",
            "model.validation_ds.batch_size": "batch_size",
            "model.validation_ds.num_workers": "num_workers",
            "model.validation_ds.pin_memory": "pin_memory",
            "model.optim.lr": "learning_rate",
            "model.megatron_amp_O2": "precision",
        },
    ),
    "speech recognition, bins and accumulation": (
        """
        batch_type: numel
        batch_bins: 16000000
        accum_grad: 4
        max_epoch: 50
        num_workers: 4
        use_amp: true
        optim: adam
        optim_conf: {lr: 0.0005}
        scheduler: warmuplr
        scheduler_conf: {warmup_steps: 30000}
        num_att_plot: 0
        keep_nbest_models: 10
        """,
        {
            "batch_bins": "batch_size",
            "accum_grad": "grad_accum",
            "num_workers": "num_workers",
            "use_amp": "precision",
            "optim_conf.lr": "learning_rate",
        },
    ),
    "speech recognition, conf blocks": (
        """
        dataset_conf:
          filter_conf: {max_length: 40960, min_length: 0, token_max_length: 200}
          batch_conf: {batch_type: static, batch_size: 16}
          shuffle_conf: {shuffle_size: 1500}
          num_workers: 4
        grad_clip: 5
        accum_grad: 1
        max_epoch: 240
        dtype: fp32
        optim_conf: {lr: 0.002}
        """,
        {
            "dataset_conf.batch_conf.batch_size": "batch_size",
            "dataset_conf.num_workers": "num_workers",
            "accum_grad": "grad_accum",
            "dtype": "precision",
            "optim_conf.lr": "learning_rate",
        },
    ),
    "speech toolkit with references": (
        """
        number_of_epochs: 80
        batch_size: 8
        grad_accumulation_factor: 4
        num_workers: 4
        lr_adam: 8.0
        precision: fp32 # bf16, fp16 or fp32
        dynamic_batching: true
        max_batch_length_train: 850
        max_batch_length_val: 100
        input_size: 640
        train_dataloader_opts: {batch_size: !ref <batch_size>, num_workers: !ref <num_workers>}
        valid_dataloader_opts: {batch_size: 1}
        add_noise: {num_workers: !ref <num_workers>}
        """,
        {
            "batch_size": "batch_size",
            "grad_accumulation_factor": "grad_accum",
            "num_workers": "num_workers",
            "lr_adam": "learning_rate",
            "precision": "precision",
            "max_batch_length_train": "batch_size",
            "max_batch_length_val": "batch_size",
            "valid_dataloader_opts.batch_size": "batch_size",
        },
    ),
    "singing voice, cascaded configs": (
        """
        base_config: [configs/base.yaml]
        binarization_args: {shuffle: true, num_workers: 0}
        ds_workers: 4
        dataloader_prefetch_factor: 2
        max_batch_frames: 50000
        max_val_batch_frames: 60000
        max_updates: 160000
        timesteps: 1000
        max_beta: 0.02
        K_step: 400
        diff_speedup: 10
        optimizer_args: {lr: 0.0006}
        lr_scheduler_args: {step_size: 10000, gamma: 0.75}
        accumulate_grad_batches: 1
        pl_trainer_precision: 16-mixed
        sort_by_len: true
        """,
        {
            "ds_workers": "num_workers",
            "dataloader_prefetch_factor": "prefetch_factor",
            "max_batch_frames": "batch_size",
            "max_val_batch_frames": "batch_size",
            "diff_speedup": "timesteps",
            "optimizer_args.lr": "learning_rate",
            "accumulate_grad_batches": "grad_accum",
            "pl_trainer_precision": "precision",
        },
    ),
    "voice conversion": (
        """
        data: {sampling_rate: 44100, block_size: 512, duration: 2}
        model: {type: Diffusion, n_layers: 20, timesteps: 1000, k_step_max: 0}
        infer: {speedup: 10, method: dpm-solver++}
        train: {num_workers: 4, amp_dtype: fp16, batch_size: 48, cache_all_data: true, lr: 0.0002,
                epochs: 100000, decay_step: 100000, gamma: 0.5, interval_val: 2000}
        env: {expdir: logs/diffusion, gpu_id: 0}
        """,
        {
            "infer.speedup": "timesteps",
            "train.num_workers": "num_workers",
            "train.amp_dtype": "precision",
            "train.batch_size": "batch_size",
            "train.lr": "learning_rate",
        },
    ),
    "vocoder": (
        """
        {"resblock": "1", "num_gpus": 0, "batch_size": 16, "learning_rate": 0.0002,
         "adam_b1": 0.8, "lr_decay": 0.999, "seed": 1234, "segment_size": 8192, "num_mels": 80,
         "num_workers": 4, "dist_config": {"dist_backend": "nccl", "world_size": 1}}
        """,
        {
            "batch_size": "batch_size",
            "learning_rate": "learning_rate",
            "num_workers": "num_workers",
        },
    ),
    "speech synthesis": (
        """
        {"mixed_precision": false, "epochs": 1000, "batch_size": 32, "eval_batch_size": 16,
         "num_loader_workers": 4, "num_val_loader_workers": 2, "batch_group_size": 4, "lr": 0.0001,
         "warmup_steps": 4000, "print_step": 25, "gradual_training": [[0, 7, 64], [1, 5, 64]],
         "loss_masking": true, "output_path": "/data/models"}
        """,
        {
            "mixed_precision": "precision",
            "batch_size": "batch_size",
            "eval_batch_size": "batch_size",
            "num_loader_workers": "num_workers",
            "num_val_loader_workers": "num_workers",
            "lr": "learning_rate",
        },
    ),
    "object detection, one flat file": (
        """
        task: detect
        mode: train
        epochs: 100
        batch: 16
        imgsz: 640
        workers: 8
        cache: false
        amp: true
        half: false
        lr0: 0.01
        lrf: 0.01
        warmup_epochs: 3.0
        warmup_bias_lr: 0.1
        close_mosaic: 10
        nbs: 64
        scale: 0.5
        patience: 100
        """,
        {
            "batch": "batch_size",
            "imgsz": "image_size",
            "workers": "num_workers",
            "amp": "precision",
            "half": "precision",
            "lr0": "learning_rate",
        },
    ),
    "self-supervised vision": (
        """
        train: {batch_size_per_gpu: 64, num_workers: 10, cache_dataset: true, output_dir: .}
        optim: {epochs: 100, base_lr: 0.004, lr: 0., scaling_rule: sqrt_wrt_1024, min_lr: 1.0e-6}
        crops: {global_crops_size: 224, local_crops_size: 96, global_crops_scale: [0.32, 1.0]}
        student: {arch: vit_large, patch_size: 16, drop_path_rate: 0.3}
        evaluation: {eval_period_iterations: 12500}
        """,
        {
            "train.batch_size_per_gpu": "batch_size",
            "train.num_workers": "num_workers",
            "optim.base_lr": "learning_rate",
            "crops.global_crops_size": "image_size",
            "crops.local_crops_size": "image_size",
        },
    ),
    "self-supervised vision, upper case": (
        """
        config:
          DATA:
            NUM_DATALOADER_WORKERS: 8
            TRAIN:
              BATCHSIZE_PER_REPLICA: 32
              TRANSFORMS: [{name: RandomResizedCrop, size: 224}, {name: ColorJitter, strength: 1.0}]
          OPTIMIZER:
            num_epochs: 100
            param_schedulers:
              lr: {auto_lr_scaling: {auto_scale: true, base_value: 0.1, base_lr_batch_size: 256}}
          MODEL: {AMP_PARAMS: {USE_AMP: false, AMP_ARGS: {opt_level: O3}}}
        """,
        {
            "config.DATA.NUM_DATALOADER_WORKERS": "num_workers",
            "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA": "batch_size",
            "config.DATA.TRAIN.TRANSFORMS[0].size": "image_size",
            "config.MODEL.AMP_PARAMS.USE_AMP": "precision",
            "config.MODEL.AMP_PARAMS.AMP_ARGS.opt_level": "precision",
        },
    ),
    "point clouds": (
        """
        DATA_CONFIG:
          _BASE_CONFIG_: cfgs/kitti.yaml
          DATA_PROCESSOR: [{NAME: sample_points, NUM_POINTS: {train: 16384, test: 16384}}]
        MODEL: {ROI_HEAD: {TARGET_CONFIG: {ROI_PER_IMAGE: 128, SAMPLE_ROI_BY_EACH_CLASS: true}}}
        OPTIMIZATION: {BATCH_SIZE_PER_GPU: 4, NUM_EPOCHS: 80, LR: 0.003, LR_CLIP: 0.0000001,
                       DECAY_STEP_LIST: [35, 45], WARMUP_EPOCH: 1}
        """,
        {"OPTIMIZATION.BATCH_SIZE_PER_GPU": "batch_size", "OPTIMIZATION.LR": "learning_rate"},
    ),
    "image models, hyphens": (
        """
        model: vit
        batch-size: 128
        validation-batch-size: 256
        workers: 8
        pin-mem: true
        no-prefetcher: false
        input-size: [3, 224, 224]
        amp: true
        lr: 5.0e-4
        warmup-lr: 1.0e-6
        min-lr: 5.0e-6
        epochs: 300
        cooldown-epochs: 10
        checkpoint-hist: 3
        channels-last: true
        """,
        {
            "batch-size": "batch_size",
            "validation-batch-size": "batch_size",
            "workers": "num_workers",
            "pin-mem": "pin_memory",
            "no-prefetcher": "prefetch_factor",
            "input-size": "image_size",
            "amp": "precision",
            "lr": "learning_rate",
        },
    ),
    "medical segmentation plans": (
        """
        {"dataset_name": "D1", "configurations": {"3d_fullres": {
           "data_identifier": "p_3d", "batch_size": 2, "patch_size": [128, 128, 128],
           "median_image_size_in_voxels": [200.0, 500.0, 500.0], "batch_dice": true,
           "conv_kernel_sizes": [[3, 3, 3]], "resampling_fn_data": "default"}}}
        """,
        {"configurations.3d_fullres.batch_size": "batch_size"},
    ),
    "source separation": (
        """
        audio: {chunk_size: 131584, num_channels: 2, sample_rate: 44100}
        training: {batch_size: 4, gradient_accumulation_steps: 1, lr: 9.0e-05, num_epochs: 1000,
                   num_steps: 1000, patience: 2, use_amp: true, target_instrument: null}
        inference: {batch_size: 1, dim_t: 256, num_overlap: 4}
        """,
        {
            "training.batch_size": "batch_size",
            "training.gradient_accumulation_steps": "grad_accum",
            "training.lr": "learning_rate",
            "training.use_amp": "precision",
            "inference.batch_size": "batch_size",
        },
    ),
    "image translation": (
        """
        max_epoch: 200
        trainer:
          amp_config: {enabled: true, dtype: float16}
          model_average_config: {enabled: false}
        cudnn: {deterministic: false, benchmark: true}
        gen_opt: {type: adam, lr: 0.0001, lr_policy: {type: step, step_size: 200}}
        dis_opt: {type: adam, lr: 0.0004}
        data:
          num_workers: 8
          train: {batch_size: 2, augmentations: {resize_smallest_side: 512, horizontal_flip: true}}
          val: {batch_size: 1}
        """,
        {
            "trainer.amp_config.enabled": "precision",
            "trainer.amp_config.dtype": "precision",
            "gen_opt.lr": "learning_rate",
            "dis_opt.lr": "learning_rate",
            "data.num_workers": "num_workers",
            "data.train.batch_size": "batch_size",
            "data.val.batch_size": "batch_size",
        },
    ),
    "fire maps": (
        """
        global: {seed: 42, cudnn_benchmark: true}
        data: {batch_size: 16, num_workers: 8, pin_memory: true, sequence_length: 3}
        train: {epochs: 50, lr: 1e-3, lr_temporal: 1e-4, lr_spatial: 1e-3}
        """,
        {
            "data.batch_size": "batch_size",
            "data.num_workers": "num_workers",
            "data.pin_memory": "pin_memory",
            "train.lr_temporal": "learning_rate",
            "train.lr_spatial": "learning_rate",
        },
    ),
    "reinforcement learning": (
        """
        CartPole-v1: {n_envs: 8, n_timesteps: 1000000, policy: MlpPolicy, n_steps: 32,
                      batch_size: 256, gae_lambda: 0.8, n_epochs: 20, learning_rate: lin_0.001}
        """,
        {},
    ),
    "model zoo record": (
        """
        Models:
          - Name: big-model
            Metadata: {Epochs: 12, batch size: 16, Training Memory (GB): 5.0}
            Results: [{Task: Detection, Metrics: {box AP: 40.2}}]
            inference time (ms/im): [{value: 71, batch size: 1, resolution: 800}]
        """,
        {},
    ),
    "node graph": (
        """
        {"nodes": [{"id": 5, "type": "EmptyLatentImage", "pos": [473, 609], "size": [315, 106],
                    "widgets_values": [512, 512, 1]}],
         "links": [[2, 5, 0, 3, 3, "LATENT"]], "version": 0.4}
        """,
        {},
    ),
    "hyperparameter search": (
        """
        hydra:
          sweeper: {params: {data.batch_size: "choice(32, 64)", model.lr: "interval(0.001, 0.1)"}}
        hyperparameters:
          learning_rate: {type: log, minval: -5, maxval: -1}
        """,
        {},
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_exactly_the_knobs_of_this_shape_are_found(
    shape: str, kinds: Callable[..., dict[str, str]]
) -> None:
    text, wanted = SHAPES[shape]
    form = "json" if text.lstrip().startswith("{") else "yaml"
    found = {path: kind for path, kind in kinds(text, form).items() if kind in SCORED}
    assert found == wanted
