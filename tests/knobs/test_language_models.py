"""Configs of programs that train or serve language models: every setting is found, and no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

LLM = {
    "transformers": (
        """
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 8, "bf16": true,
         "group_by_length": true, "gradient_checkpointing": true, "torch_compile": false,
         "dataloader_num_workers": 4, "dataloader_prefetch_factor": 2, "packing": true,
         "attn_implementation": "sdpa", "max_seq_length": 2048, "dataloader_pin_memory": true}
        """,
        {
            "per_device_train_batch_size": "batch_size",
            "gradient_accumulation_steps": "grad_accum",
            "bf16": "precision",
            "group_by_length": "length_grouping",
            "gradient_checkpointing": "grad_checkpoint",
            "torch_compile": "compile",
            "dataloader_num_workers": "num_workers",
            "dataloader_prefetch_factor": "prefetch_factor",
            "packing": "packing",
            "attn_implementation": "attention_impl",
            "max_seq_length": "seq_len",
            "dataloader_pin_memory": "pin_memory",
        },
    ),
    "recipes": (
        """
        tokenizer: {max_seq_len: null}
        dataset: {packed: false}
        batch_size: 2
        gradient_accumulation_steps: 8
        optimizer: {fused: true, lr: 2.0e-5}
        optimizer_in_bwd: false
        compile: false
        enable_activation_checkpointing: true
        enable_activation_offloading: false
        dtype: bf16
        """,
        {
            "dataset.packed": "packing",
            "batch_size": "batch_size",
            "gradient_accumulation_steps": "grad_accum",
            "optimizer.fused": "fused_kernels",
            "optimizer.lr": "learning_rate",
            "optimizer_in_bwd": "optimizer_in_backward",
            "compile": "compile",
            "enable_activation_checkpointing": "grad_checkpoint",
            "enable_activation_offloading": "offload",
            "dtype": "precision",
        },
    ),
    "parallel pretraining": (
        """
        trainer: {devices: 8, precision: bf16-mixed, accumulate_grad_batches: 1}
        model:
          micro_batch_size: 4
          global_batch_size: 128
          encoder_seq_length: 4096
          activations_checkpoint_granularity: selective
          data: {num_workers: 2}
          optim: {lr: 3.0e-4}
        """,
        {
            "trainer.devices": "num_devices",
            "trainer.precision": "precision",
            "trainer.accumulate_grad_batches": "grad_accum",
            "model.micro_batch_size": "batch_size",
            "model.global_batch_size": "batch_size",
            "model.activations_checkpoint_granularity": "grad_checkpoint",
            "model.data.num_workers": "num_workers",
            "model.optim.lr": "learning_rate",
        },
    ),
    "sharded training": (
        """
        {"train_batch_size": 64, "gradient_accumulation_steps": 4,
         "bf16": {"enabled": true},
         "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu",
                               "pin_memory": true}}}
        """,
        {
            "train_batch_size": "batch_size",
            "gradient_accumulation_steps": "grad_accum",
            "bf16.enabled": "precision",
            "zero_optimization.stage": "sharding",
            "zero_optimization.offload_optimizer.device": "offload",
        },
    ),
}


@pytest.mark.parametrize("stack", LLM)
def test_every_setting_of_a_language_model_stack_is_found(
    stack: str, kinds: Callable[..., dict[str, str]]
) -> None:
    text, wanted = LLM[stack]
    found = kinds(text, "json" if text.lstrip().startswith("{") else "yaml")
    assert found == wanted
