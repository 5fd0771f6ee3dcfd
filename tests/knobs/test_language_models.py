"""Configs of programs that train or serve language models: every setting is found, and no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

LLM = {
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
}


@pytest.mark.parametrize("stack", LLM)
def test_every_setting_of_a_language_model_stack_is_found(
    stack: str, kinds: Callable[..., dict[str, str]]
) -> None:
    text, wanted = LLM[stack]
    found = kinds(text, "json" if text.lstrip().startswith("{") else "yaml")
    assert found == wanted
