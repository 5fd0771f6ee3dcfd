"""Every kind of knob, one KnobSpec each.

A further DataLoader argument is one row of LOADER_ARGUMENTS: finder, constraints, tuner, patches
and report read the spec. Names that need more than a pattern stand in catalogue.toml, names.toml.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advisor.model import Effects, JsonScalar, KnobClass, Phase

Prerequisite = Literal["workers", "gpu"]
FLIP: Literal["flip"] = "flip"
"""Candidate values of a flag: the other one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobSpec:
    """Kind of knob: names, risk, values and effect."""

    kind: str
    words: str
    """Name for readers."""
    knob_class: KnobClass
    class_of_phase: Mapping[str, KnobClass] = field(default_factory=dict)
    family: str
    """Values it may have: a family of catalogue.toml."""
    names: tuple[str, ...] = ()
    """Patterns of whole names, beside the rules of catalogue.toml."""
    phase: Phase | None = None
    """The phase it always belongs to."""
    usual_phase: Phase | None = None
    """The phase where nothing says otherwise."""
    unit: str | None = None
    effect: str | None = None
    """Field of Effects, or argument of the observed DataLoader, that shows its value."""
    default: JsonScalar = None
    """Value without the argument."""
    candidates: tuple[JsonScalar, ...] | Literal["flip"] = ()
    """Values to try on top of the best, where a search of its own does not choose them."""
    in_code: int | bool | None = None
    """Value to suggest for the code, where no config holds the argument."""
    needs: frozenset[Prerequisite] = frozenset()
    trainer_argument: str | None = None
    """Its name among the TrainingArguments of transformers."""
    none_is_a_value: bool = False
    """None is what the program passes on, and no sign of a value set elsewhere."""

    def class_in(self, phase: Phase) -> KnobClass:
        """The risk class in one phase."""
        return self.class_of_phase.get(phase, self.knob_class)

    def observed(self, effects: Effects) -> JsonScalar:
        """The observed value; None is not measured."""
        if self.effect is None:
            return None
        if hasattr(effects, self.effect):
            value: JsonScalar = getattr(effects, self.effect)
            return value
        return dict(effects.loader_arguments).get(self.effect)

    def values_to_try(self, current: object, observed: JsonScalar = None) -> list[JsonScalar]:
        """Values to try, without present and `observed`."""
        if self.candidates == FLIP:
            return [not current]
        return [value for value in self.candidates if value not in (current, observed)]

    def worth_suggesting(self, effects: Effects) -> bool:
        """True if `in_code` would change what was observed."""
        seen = self.observed(effects)
        if self.in_code is None or (seen is None and "gpu" in self.needs):
            return False
        current = self.default if seen is None else seen
        return not isinstance(current, int) or current < self.in_code


WORKERS: frozenset[Prerequisite] = frozenset({"workers"})

LOADER_ARGUMENTS = (
    KnobSpec(
        kind="num_workers",
        words="loader workers",
        knob_class="free",
        family="sizes",
        usual_phase="train",
        effect="workers",
        default=0,
        trainer_argument="dataloader_num_workers",
    ),
    KnobSpec(
        kind="prefetch_factor",
        words="batches loaded ahead by each worker",
        knob_class="free",
        family="level",
        effect="prefetch_factor",
        default=2,
        candidates=(2, 4, 8),
        in_code=4,
        needs=WORKERS,
        trainer_argument="dataloader_prefetch_factor",
        none_is_a_value=True,
    ),
    KnobSpec(
        kind="persistent_workers",
        words="workers kept between passes",
        knob_class="free",
        family="flag",
        effect="persistent_workers",
        default=False,
        candidates=FLIP,
        in_code=True,
        needs=WORKERS,
        trainer_argument="dataloader_persistent_workers",
    ),
    KnobSpec(
        kind="pin_memory",
        words="batches in pinned memory",
        knob_class="free",
        family="flag",
        effect="pin_memory",
        default=False,
        candidates=FLIP,
        in_code=True,
        needs=frozenset({"gpu"}),
        trainer_argument="dataloader_pin_memory",
    ),
)
"""Arguments of DataLoader that a config may hold, and that may be added to one."""

REGISTRY: Mapping[str, KnobSpec] = {
    spec.kind: spec
    for spec in (
        KnobSpec(
            kind="batch_size",
            words="samples of one batch",
            knob_class="training",
            class_of_phase={"eval": "free", "test": "free"},
            family="sizes",
            usual_phase="train",
            unit="sample",
            effect="batch",
        ),
        *LOADER_ARGUMENTS,
        KnobSpec(
            kind="precision", words="precision", knob_class="numeric", family="precision-or-flag"
        ),
        KnobSpec(
            kind="grad_accum",
            words="batches of one update",
            knob_class="training",
            family="sizes",
            phase="train",
            effect="accumulation",
        ),
        KnobSpec(
            kind="grad_checkpoint",
            words="activations computed twice",
            knob_class="free",
            family="level",
            phase="train",
            effect="recomputes",
        ),
        KnobSpec(
            kind="timesteps",
            words="sampling steps",
            knob_class="quality",
            family="steps",
            usual_phase="test",
            unit="step",
            effect="forwards_per_unit",
        ),
        KnobSpec(
            kind="compile",
            words="torch.compile",
            knob_class="numeric",
            family="level",
            effect="compiled",
        ),
        KnobSpec(
            kind="cudnn_benchmark",
            words="cuDNN autotuning",
            knob_class="numeric",
            family="flag",
            effect="cudnn_benchmark",
        ),
        KnobSpec(kind="tf32", words="TF32", knob_class="numeric", family="level", effect="tf32"),
        KnobSpec(
            kind="channels_last",
            words="channels-last layout",
            knob_class="numeric",
            family="flag",
            effect="channels_last",
        ),
        KnobSpec(
            kind="attention_impl",
            words="attention implementation",
            knob_class="numeric",
            family="level",
            phase="any",
        ),
        KnobSpec(
            kind="fused_kernels",
            words="fused optimizer",
            knob_class="numeric",
            family="level",
            phase="train",
        ),
    )
}
"""Kinds by name: those that are tuned, and those that constraints and quality need."""


def spec(kind: str) -> KnobSpec:
    """Specification of one kind.

    Raises KeyError for an unknown one.
    """
    return REGISTRY[kind]


def loader_arguments(prerequisite: Prerequisite | None = None) -> tuple[str, ...]:
    """Names of DataLoader arguments, filtered by prerequisite."""
    return tuple(
        each.kind for each in LOADER_ARGUMENTS if prerequisite is None or prerequisite in each.needs
    )
