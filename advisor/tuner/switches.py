"""Switches of the code that are tried from inside the process, as data; and when each is worth it.

A switch is only worth a process where the program has not set it already, and no config holds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.tuner.standing import TunerState

COMPILE_S = 90.0
"""What compilation may add to one process; it is kept out of the measured window."""
WORTH_COMPUTE = 0.3
"""Share of the time in the model's calls, below which to speed them up gains little."""
MOST_VALUES = 2
"""Values of one switch that get a process."""


def autocast_dtypes(now: TunerState) -> tuple[str, ...]:
    """The dtype to autocast to; float16 only where no gradients need a scaler."""
    if "bfloat16" in now.facts.precisions:
        return ("bfloat16",)
    return ("float16",) if "float16" in now.facts.precisions and not now.trains else ()


def thread_counts(now: TunerState) -> tuple[str, ...]:
    """Numbers of threads that may be better: what the workers leave, every CPU, half, one.

    Where the model computes on a GPU the threads only matter to workers that share few CPUs.
    """
    seen = now.front.effects
    cpus = max(1, now.facts.cpus // (seen.world_size or 1))
    workers = seen.workers or 0
    left = max(1, cpus - workers)
    if now.front.on_gpu:
        wanted = [left] if workers >= cpus - 1 and workers else []
    else:
        wanted = ([left] if workers else []) + [cpus, max(1, cpus // 2), 1]
    others = [count for count in dict.fromkeys(wanted) if count != seen.threads]
    return tuple(map(str, others[:MOST_VALUES]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """One switch of the catalogue, and when it deserves a process."""

    name: str
    """As the probe knows it."""
    kind: str | None
    """The knob that would hold it in a config."""
    effect: str
    """Field of Effects that tells whether it is on."""
    off: object = None
    """Its value where the switch is worth a try; None: whatever it is, if it was seen."""
    values: Callable[[TunerState], tuple[str, ...]] | None = None
    """What to set it to, where it takes more than to be on."""
    needs_cuda: bool = True
    needs_training: bool = False
    guarded: bool = False
    """It changes rounding: tried only where the user declared a tolerance."""
    extra_s: float = 0.0
    least_compute: float = 0.0
    """Without a GPU it is worth a process where the model takes this share of the time."""
    code: str
    """What to write in the code, with `{value}` where it has some: code in backticks, and prose."""
    statements: tuple[str, ...] = ()
    """The same, where it can stand by itself after the imports."""


SWITCHES = (
    Switch(
        name="cudnn_benchmark",
        kind="cudnn_benchmark",
        effect="cudnn_benchmark",
        off=False,
        code="`torch.backends.cudnn.benchmark = True`",
        statements=("torch.backends.cudnn.benchmark = True",),
    ),
    Switch(
        name="channels_last",
        kind="channels_last",
        effect="channels_last",
        off=False,
        needs_cuda=False,
        least_compute=WORTH_COMPUTE,
        code="`model = model.to(memory_format=torch.channels_last)`, and the same for its input",
    ),
    Switch(
        name="non_blocking",
        kind=None,
        effect="pin_memory",
        off=True,
        code="`batch.to(device, non_blocking=True)`",
    ),
    Switch(
        name="set_to_none",
        kind=None,
        effect="set_to_none",
        off=False,
        needs_cuda=False,
        needs_training=True,
        code="`optimizer.zero_grad(set_to_none=True)`",
    ),
    Switch(
        name="fused",
        kind="fused_kernels",
        effect="fused",
        off=False,
        needs_training=True,
        code="`torch.optim.AdamW(..., fused=True)`, and the same for Adam and SGD",
    ),
    Switch(
        name="tf32",
        kind="tf32",
        effect="tf32",
        off=False,
        guarded=True,
        code='`torch.set_float32_matmul_precision("high")`',
        statements=('torch.set_float32_matmul_precision("high")',),
    ),
    Switch(
        name="autocast",
        kind="precision",
        effect="dtype",
        off="float32",
        needs_cuda=False,
        guarded=True,
        values=autocast_dtypes,
        code="`with torch.autocast(device_type, dtype=torch.{value}):` around the model's call",
    ),
    Switch(
        name="threads",
        kind=None,
        effect="threads",
        needs_cuda=False,
        values=thread_counts,
        code="`torch.set_num_threads({value})`, or `OMP_NUM_THREADS={value}` before the command",
        statements=("torch.set_num_threads({value})",),
    ),
    Switch(
        name="compile",
        kind="compile",
        effect="compiled",
        off=False,
        needs_cuda=False,
        least_compute=WORTH_COMPUTE,
        extra_s=COMPILE_S,
        code="`model.compile()`",
    ),
)


def applies(now: TunerState, switch: Switch) -> bool:
    """Whether `switch` deserves a process: it is off, it can matter, and no config holds it."""
    seen = getattr(now.front.effects, switch.effect)
    if seen is None or switch.off not in {None, seen}:
        return False
    if switch.kind and _tuned_in_config(now, switch.kind):
        return False
    if (switch.needs_cuda and not now.front.on_gpu) or (switch.needs_training and not now.trains):
        return False
    if not now.front.on_gpu and (now.front.shares.compute or 0.0) < switch.least_compute:
        return False
    return bool(whatifs(now, switch))


def whatifs(now: TunerState, switch: Switch) -> tuple[str, ...]:
    """What is tried, as the probe knows it: `compile`, `autocast=bfloat16`, `threads=4`."""
    if switch.values is None:
        return (switch.name,)
    return tuple(f"{switch.name}={value}" for value in switch.values(now))


def _tuned_in_config(now: TunerState, kind: str) -> bool:
    """Whether a knob of the documents sets it, and was or will be tried there."""
    words = [now.word_on(knob) for knob in now.of_kind(kind)]
    return any(word is None or word.outcome not in {"ignored", "listed"} for word in words)
