"""Every kind of knob, one KnobSpec each.

A further DataLoader argument is one row of LOADER_ARGUMENTS, and a further switch of torch one row
of KINDS with a `switch`: all rooms read the spec. Beside it the probe needs a line that sets it
(`probe/overrides.py`). Names that need more than a pattern stand in catalogue.toml and names.toml.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from advisor.model import Effects, JsonScalar, KnobClass, Phase

Prerequisite = Literal["workers", "gpu", "compute", "training", "tolerance"]
"""What a value needs to do something: loader workers; a model on a card; much of the time in model
calls, or a card; a training; a declared tolerance, for what rounds otherwise."""


@dataclass(frozen=True, slots=True)
class Switch:
    """How a kind is set in a program that holds no such setting: by the probe, and by its user."""

    override: str
    """Name that the probe knows it by."""
    _: KW_ONLY
    statement: str = ""
    """Code that can stand alone after the imports; `{value}` is the value."""
    code: str = ""
    """Other words for what the user has to write."""
    seen_in: str = ""
    """Field of Effects that tells if it can be switched; empty: the kind's own."""
    off: JsonScalar = False
    """Value of that field at which it can be. None: at any that was seen."""
    start_s: float = 0.0
    """Seconds that it costs once, at the start, until they are measured."""

    def shown(self, value: JsonScalar) -> str:
        """What the user writes, as text."""
        mode = "" if value is True else f'mode="{value}"'
        return (self.code or f"`{self.statement}`").format(value=value, mode=mode)


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
    flag: tuple[tuple[JsonScalar, JsonScalar], ...] = ()
    """Values of a flag, each with one that may be faster: `value_trials.tune_flags` tries it. None
    given: found and told, never tried."""
    switch: Switch | None = None
    """For what the running program has, whether a config names it or not."""
    needs: tuple[Prerequisite, ...] = ()
    none_is_a_value: bool = False
    """None is what the program passes on, not a value set elsewhere."""

    def class_in(self, phase: Phase) -> KnobClass:
        return "free" if phase in self.free_in else self.knob_class

    def observed(self, effects: Effects) -> JsonScalar:
        """Observed value; None is not measured."""
        of_loader = dict(effects.loader_arguments).get(self.effect)
        return getattr(effects, self.effect, of_loader)

    def switched_off(self, effects: Effects) -> tuple[bool, JsonScalar]:
        """True if the probe can switch it from where it was seen, and the value there."""
        if self.switch is None:
            return False, None
        seen = getattr(effects, self.switch.seen_in or self.effect)
        is_flag = isinstance(self.switch.off, bool)
        able = seen is not None and self.switch.off in (None, seen)
        return able, False if is_flag else seen

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
    KnobSpec(
        "cudnn_benchmark", "cuDNN autotuning", "numeric", "flag",
        effect="cudnn_benchmark",
        flag=((False, True),),
        needs=("gpu",),
        switch=Switch("cudnn_benchmark", statement="torch.backends.cudnn.benchmark = True"),
    ),
    KnobSpec(
        "channels_last", "channels-last layout", "numeric", "flag",
        effect="channels_last",
        flag=((False, True),),
        needs=("compute",),
        switch=Switch(
            "channels_last",
            code="`model = model.to(memory_format=torch.channels_last)`, and the same for its "
            "input",
        ),
    ),
    KnobSpec(
        "non_blocking", "copies that are queued", "free", "flag",
        needs=("gpu",),
        switch=Switch(
            "non_blocking",
            code="`batch.to(device, non_blocking=True)`",
            seen_in="pin_memory",
            off=True,
        ),
    ),
    KnobSpec(
        "fused_kernels", "fused optimizer", "numeric", "level",
        phase="train",
        flag=((False, True), ("adamw_torch", "adamw_torch_fused")),
        needs=("gpu", "training"),
        switch=Switch(
            "fused",
            code="`torch.optim.AdamW(..., fused=True)`, and the same for Adam and SGD",
            seen_in="fused",
        ),
    ),
    KnobSpec(
        "threads", "CPU threads of one operation", "free", "sizes",
        effect="threads",
        switch=Switch(
            "threads",
            statement="torch.set_num_threads({value})",
            code="`torch.set_num_threads({value})`, or `OMP_NUM_THREADS={value}` before the "
            "command",
            off=None,
        ),
    ),
    KnobSpec(
        "tf32", "TF32", "numeric", "level",
        effect="tf32",
        flag=((False, True),),
        needs=("gpu", "tolerance"),
        switch=Switch("tf32", statement='torch.set_float32_matmul_precision("high")'),
    ),
    KnobSpec(
        "precision", "precision", "numeric", "precision-or-flag",
        needs=("tolerance",),
        switch=Switch(
            "autocast",
            code="`with torch.autocast(device_type, dtype=torch.{value}):` around the model's call",
            seen_in="dtype",
            off="float32",
        ),
    ),
    KnobSpec(
        "compile", "torch.compile", "numeric", "level",
        effect="compiled",
        flag=((False, True),),
        needs=("compute",),
        switch=Switch("compile", code="`model.compile({mode})`", start_s=30.0),
    ),
    KnobSpec(
        "attention_impl", "attention implementation", "numeric", "level",
        phase="any",
        flag=(("eager", "sdpa"),),
    ),
    KnobSpec(
        "kv_cache", "keys and values of tokens before", "numeric", "flag",
        phase="test",
        flag=((False, True),),
    ),
    KnobSpec(
        "num_beams", "beams of a search", "quality", "sizes",
        usual_phase="test",
    ),
    KnobSpec(
        "num_envs", "environments stepped at a time", "training", "sizes-or-empty",
        usual_phase="train",
    ),
)  # fmt: skip
REGISTRY: Mapping[str, KnobSpec] = {spec.kind: spec for spec in KINDS}
"""Kinds by name: to tune, and those that constraints and quality need."""


def loader_arguments(need: Prerequisite | None = None) -> tuple[str, ...]:
    return tuple(spec.kind for spec in LOADER_ARGUMENTS if need in (None, *spec.needs))


def switches() -> tuple[KnobSpec, ...]:
    """Kinds that the running program has, beside the arguments of its loaders."""
    return tuple(spec for spec in KINDS if spec.switch is not None)
