"""Configs that a search on a formula begins with, and what is declared of their workloads."""

TRAINING = "batch_size: 4\nnum_workers: 0\naccumulation_steps: 8\nprecision: fp32\n"
INFERENCE = "batch_size: 1\nnum_workers: 0\n"
TEST = {"phase": "test"}
GUARD = {"numeric-tolerance": "1%"}
