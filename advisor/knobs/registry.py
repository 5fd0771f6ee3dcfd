"""Every kind of knob, one KnobSpec each.

A further DataLoader argument is one row of LOADER_ARGUMENTS: all rooms read the spec.
Names that need more than a pattern stand in catalogue.toml and names.toml.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from advisor.model import Effects, JsonScalar, KnobClass, Phase

Prerequisite = Literal["workers", "gpu"]


@dataclass(frozen=True, slots=True)
class KnobSpec:
    kind: str
    words: str
    knob_class: KnobClass
    family: str
    """Possible values: a family of catalogue.toml."""
    _: KW_ONLY
    free_in: tuple[Phase, ...] = ()
    """Phases in which it changes no results."""
    names: tuple[str, ...] = ()
    """Patterns of whole names, beside the rules of catalogue.toml."""
    phase: Phase | None = None
    usual_phase: Phase | None = None
    """Phase where nothing says otherwise."""
    unit: str | None = None
    effect: str = ""
    """Field of Effects, or DataLoader argument, that shows its value."""
    default: JsonScalar = None
    """Value without the argument."""
    candidates: tuple[JsonScalar, ...] = ()
    """Values to try on the best, without a search of its own."""
    by_hand: tuple[JsonScalar, ...] = ()
    """Further values to try where the user, not this program, would write them."""
    needs: tuple[Prerequisite, ...] = ()
    none_is_a_value: bool = False
    """None is what the program passes on, not a value set elsewhere."""

    def class_in(self, phase: Phase) -> KnobClass:
        return "free" if phase in self.free_in else self.knob_class

    def observed(self, effects: Effects) -> JsonScalar:
        """Observed value; None is not measured."""
        of_loader = dict(effects.loader_arguments).get(self.effect)
        return getattr(effects, self.effect, of_loader)

    def values_to_try(
        self, current: object, observed: JsonScalar = None, *, by_hand: bool = False
    ) -> list[JsonScalar]:
        values = (*self.candidates, *(self.by_hand if by_hand else ()))
        return [value for value in values if value not in (current, observed)]


LOADER_ARGUMENTS = (
    KnobSpec(
        "num_workers", "loader workers", "free", "sizes",
        usual_phase="train",
        effect="workers",
        default=0,
    ),
    KnobSpec(
        "prefetch_factor", "batches loaded ahead by each worker", "free", "level",
        effect="prefetch_factor",
        default=2,
        candidates=(2, 4, 8),
        needs=("workers",),
        none_is_a_value=True,
    ),
    KnobSpec(
        "persistent_workers", "workers kept between passes", "free", "flag",
        effect="persistent_workers",
        default=False,
        candidates=(False, True),
        needs=("workers",),
    ),
    KnobSpec(
        "pin_memory", "batches in pinned memory", "free", "flag",
        effect="pin_memory",
        default=False,
        candidates=(False, True),
        needs=("gpu",),
    ),
    KnobSpec(
        "in_order", "batches in the order of the sampler", "training", "flag",
        names=("in_order",),
        effect="in_order",
        default=True,
        by_hand=(False,),
        needs=("workers",),
    ),
)  # fmt: skip
"""DataLoader arguments that a config may hold or be given."""

KINDS = (
    KnobSpec(
        "batch_size", "samples of one batch", "training", "sizes",
        free_in=("eval", "test"),
        usual_phase="train",
        unit="sample",
        effect="batch",
    ),
    *LOADER_ARGUMENTS,
    KnobSpec("precision", "precision", "numeric", "precision-or-flag"),
    KnobSpec(
        "grad_accum", "batches of one update", "training", "sizes",
        phase="train",
        effect="accumulation",
    ),
    KnobSpec(
        "grad_checkpoint", "activations computed twice", "free", "level",
        phase="train",
        effect="recomputes",
    ),
    KnobSpec(
        "timesteps", "sampling steps", "quality", "steps",
        usual_phase="test",
        unit="step",
        effect="forwards_per_unit",
    ),
    KnobSpec(
        "length_grouping", "items of like length in one batch", "training", "grouping",
        phase="train",
    ),
    KnobSpec("packing", "texts joined until they fill a row", "training", "flag", phase="train"),
    KnobSpec("compile", "torch.compile", "numeric", "level", effect="compiled"),
    KnobSpec("cudnn_benchmark", "cuDNN autotuning", "numeric", "flag", effect="cudnn_benchmark"),
    KnobSpec("tf32", "TF32", "numeric", "level", effect="tf32"),
    KnobSpec("channels_last", "channels-last layout", "numeric", "flag", effect="channels_last"),
    KnobSpec("attention_impl", "attention implementation", "numeric", "level", phase="any"),
    KnobSpec("kv_cache", "keys and values of tokens before", "numeric", "flag", phase="test"),
    KnobSpec("fused_kernels", "fused optimizer", "numeric", "level", phase="train"),
)  # fmt: skip
REGISTRY: Mapping[str, KnobSpec] = {spec.kind: spec for spec in KINDS}
"""Kinds by name: to tune, and those that constraints and quality need."""


def loader_arguments(need: Prerequisite | None = None) -> tuple[str, ...]:
    return tuple(each.kind for each in LOADER_ARGUMENTS if need in (None, *each.needs))
