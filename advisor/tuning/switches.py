"""Switches of the code, tried from inside the process: autocast, channels_last, compile, ...

Each is only worth a process where the program has not set it already, and no config holds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.tuning import model_patches, patches
from advisor.tuning.bottleneck import on_gpu
from advisor.tuning.proposals import (
    Proposal,
    faster_run,
    held_by_config,
    located,
)

if TYPE_CHECKING:
    from advisor.tuning.guard import Guard
    from advisor.tuning.search import Search

COMPILE_S = 90.0
"""What compilation may add to one process; it is kept out of the measured window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One switch of the catalogue, and when it deserves a process."""

    name: str
    """As the probe knows it; `autocast` gets its dtype from the target."""
    kind: str | None
    """The knob that would hold it in a config."""
    effect: str
    """Field of Effects that tells whether it is on, and the value it must have to be tried."""
    off: object
    needs_cuda: bool = True
    needs_training: bool = False
    guarded: bool = False
    """It changes rounding: tried only where the user declared a tolerance."""
    extra_s: float = 0.0
    code: str
    """What to write in the code."""
    statements: tuple[str, ...] = ()
    """The same, where it can stand by itself after the imports."""


SETTINGS = (
    Setting(
        name="cudnn_benchmark",
        kind="cudnn_benchmark",
        effect="cudnn_benchmark",
        off=False,
        code="torch.backends.cudnn.benchmark = True",
        statements=("torch.backends.cudnn.benchmark = True",),
    ),
    Setting(
        name="channels_last",
        kind="channels_last",
        effect="channels_last",
        off=False,
        code="model = model.to(memory_format=torch.channels_last), and the same for its input",
    ),
    Setting(
        name="non_blocking",
        kind=None,
        effect="pin_memory",
        off=True,
        code="batch.to(device, non_blocking=True)",
    ),
    Setting(
        name="set_to_none",
        kind=None,
        effect="set_to_none",
        off=False,
        needs_cuda=False,
        needs_training=True,
        code="optimizer.zero_grad(set_to_none=True)",
    ),
    Setting(
        name="tf32",
        kind="tf32",
        effect="tf32",
        off=False,
        guarded=True,
        code="torch.backends.cuda.matmul.allow_tf32 = True",
        statements=(
            "torch.backends.cuda.matmul.allow_tf32 = True",
            "torch.backends.cudnn.allow_tf32 = True",
        ),
    ),
    Setting(
        name="autocast",
        kind="precision",
        effect="dtype",
        off="float32",
        needs_cuda=False,
        guarded=True,
        code="with torch.autocast(device_type, dtype=torch.{dtype}): around the model's call",
    ),
    Setting(
        name="compile",
        kind="compile",
        effect="compiled",
        off=False,
        extra_s=COMPILE_S,
        code="model.compile()",
    ),
)


def applies(search: Search, setting: Setting, guard: Guard) -> bool:
    """Whether `setting` deserves a process: it is off, it can matter, and no config holds it."""
    assert search.best is not None
    seen = getattr(search.best.effects, setting.effect)
    if seen != setting.off or (setting.kind and held_by_config(search, setting.kind)):
        return False
    if (setting.needs_cuda and not on_gpu(search.best)) or (
        setting.needs_training and not search.trains
    ):
        return False
    if setting.name == "autocast" and precision(search) is None:
        return False
    if not setting.guarded:
        return True
    if guard.declared:
        return True
    search.notes.append(
        f"{setting.name} was not tried: it changes rounding, and no numeric-tolerance or quality "
        "measure is declared for this workload in gpu-advisor.toml."
    )
    return False


def precision(search: Search) -> str | None:
    """The dtype to autocast to; float16 only where no gradients need a scaler."""
    if "bfloat16" in search.precisions:
        return "bfloat16"
    return "float16" if "float16" in search.precisions and not search.trains else None


def tried(
    search: Search, setting: Setting, guard: Guard, without_gain: list[str]
) -> list[Proposal]:
    """Run `setting`; a proposal if it was faster and, where it needs one, inside its guard."""
    assert search.best is not None
    dtype = precision(search) if setting.name == "autocast" else None
    whatif = f"{setting.name}={dtype}" if dtype else setting.name
    run = faster_run(search, whatif, without_gain, setting.extra_s)
    if run is None:
        return []
    seen = ""
    if setting.guarded:
        inside, seen = guard.within(search.best_candidate, run, whatif)
        if not inside:
            without_gain.append(f"{whatif} ({seen})")
            return []
    site, patch = patched(search, setting, dtype)
    cost = run.whatif.cost_s if run.whatif else None
    parts = [
        f"In the code: `{setting.code.format(dtype=dtype)}`",
        seen,
        f"It takes {cost:.0f} s once, at the start" if cost else "",
    ]
    return [
        Proposal(
            candidate=search.best_candidate,
            whatif=whatif,
            title=whatif,
            detail=". ".join(part for part in parts if part) + ".",
            run=run,
            ratio=run.units_per_s / search.best.units_per_s,
            extra_s=setting.extra_s,
            site=site,
            patch=patch,
        )
    ]


def patched(search: Search, setting: Setting, dtype: str | None) -> tuple[str | None, str | None]:
    """Where the code would change for `setting`, and the patch where that place is certain."""
    assert search.best is not None
    site, cwd = search.best.effects.model_site, search.runner.program.cwd
    place = located(search, site)
    if place is None:
        return site, None
    path, line = place
    if setting.statements:
        return site, patches.statement_patch(path, setting.statements, cwd)
    if setting.name == "autocast" and dtype is not None:
        device = (search.best.effects.device or "cpu").partition(":")[0]
        return site, model_patches.autocast_patch(path, line, device, dtype, cwd)
    if setting.name == "compile":
        return site, model_patches.compile_patch(path, line, cwd)
    if setting.name == "set_to_none" and (found := model_patches.zero_grad_patch(path, cwd)):
        return f"{(site or '').rpartition(':')[0]}:{found[0]} zero_grad(...)", found[1]
    return site, None
