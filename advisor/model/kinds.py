"""Closed sets of words that several models share."""

from __future__ import annotations

from typing import Literal

JsonScalar = str | int | float | bool | None

KnobClass = Literal["free", "training", "numeric", "quality"]
"""free: results cannot change; training: optimisation changes; numeric: rounding changes;
quality: the product itself changes."""

Phase = Literal["train", "eval", "test", "any"]

Purpose = Literal[
    "baseline",
    "search",
    "effects",
    "quality",
    "confirm",
    "whatif",
    "profile",
    "gate",
]

EffectVerdict = Literal["took effect", "ignored", "unknown"]

TrainingSign = Literal["optimizer", "backward", "gradients"]
"""optimizer: one of torch's stepped; backward, gradients: the program takes gradients and steps by
itself."""

SAMPLER_FORWARDS = 4
"""From so many forwards a unit on it is an iterative sampler."""

TRAINING_STEPS = ("optimizer step", "training step")
"""Kinds of step that end in an update: of an optimizer of torch's, or of the program's own."""
