"""Steps: rates against the program's own events, and causes that were made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.model import Run
from advisor.report.bottleneck import diagnose
from benchmarks.gpu.bench import description, own_rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.gpu.bench import Bench
    from benchmarks.gpu.record import Line

OFF = 0.03
"""What the probe's rate may be off the program's own."""
VARIANTS = {
    "a sync-free loop": "--train --loader --kernel 8",
    "torch.compile": "--train --loader --kernel 8 --variant compile",
    "whole-step CUDA graphs": "--train --kernel 8 --variant graph",
    "GradScaler": "--train --loader --kernel 8 --variant scaler",
    "channels_last": "--train --loader --kernel 8 --variant channels_last",
    "inference that runs ahead": "--loader --kernel 8",
}
SEEN = {
    "torch.compile": ("compiled", True),
    "channels_last": ("channels_last", True),
    "GradScaler": ("dtype", "float16"),
}
"""Effect that the probe must have seen."""
FEW = ("a sync-free loop", "whole-step CUDA graphs")
MEND = {
    "rate": "advisor/probe/cuda_events.py (when was the device done?), then window.py (warm-up)",
    "torch.compile": "advisor/probe/module_hooks.py shield_compiled; a recompile in the window",
    "whole-step CUDA graphs": "probe/cuda_graphs.py: were replays counted, was the capture cut?",
}

CAUSES = {
    "data_wait": "--train --loader --fetch 30 --kernel 10",
    "other": "--train --loader --host 60 --kernel 15",
    "launch": "--train --loader --small 400",
    "host_to_device": "--train --loader --copied 256 --kernel 5",
    "sync": "--train --loader --host 12 --kernel 14 --item",
    "compute": "--train --loader --host 2 --kernel 30",
}
ON_A_SIMULATED_CARD = {"host_to_device": "--train --loader --copied 8 --kernel 5"}
FEW_CAUSES = ("other", "host_to_device")
SHARE_OFF = 0.05


def rates(bench: Bench) -> Iterator[Line]:
    """Each way to compute, run to its own end, with its own account beside the probe's."""
    seconds = "2" if bench.simulated else "4"
    for name, words in VARIANTS.items():
        if bench.simulated and name not in FEW:
            continue
        asked = (*words.split(), "--seconds", seconds)
        run = bench.measured(*asked, mode="whole", limit_s=150.0)
        if not isinstance(run, Run):
            mend = MEND.get(name, MEND["rate"])
            yield bench.line(
                name, "a rate", description(run), False, f"{mend}; {run.log_tail[-300:]}"
            )
            continue
        own = own_rate(run)
        off = run.units_per_s / own - 1 if own else None
        yield bench.line(
            name, f"within {OFF:.0%} of its own events",
            "it told no rate of its own" if own is None or off is None
            else f"{off:+.2%}: {run.units_per_s:.5g}/s, own {own:.5g}/s, {run.step_kind}",
            off is not None and abs(off) <= OFF, MEND.get(name, MEND["rate"]),
        )  # fmt: skip
        if name in SEEN:
            effect, wanted = SEEN[name]
            seen = getattr(run.effects, effect)
            yield bench.line(
                f"{name} is seen", f"{effect} {wanted}", str(seen), seen == wanted,
                "advisor/probe/module_facts.py flags",
            )  # fmt: skip
        if name == "a sync-free loop" and run.telemetry.gpu_util_pct is not None:
            yield bench.line(
                "NVML's utilisation beside the stream's", "", f"{run.telemetry.gpu_util_pct:.0f} % "
                f"and {(run.shares.compute or 0) * 100:.0f} %", None,
            )  # fmt: skip


def causes(bench: Bench) -> Iterator[Line]:
    """Each made bottleneck is named; a kernel of known length has its share."""
    for cause, words in CAUSES.items():
        if bench.simulated and cause not in FEW_CAUSES:
            continue
        asked = ON_A_SIMULATED_CARD.get(cause, words) if bench.simulated else words
        run = bench.measured(*asked.split(), limit_s=60.0)
        if not isinstance(run, Run):
            mend = f"advisor/analysis/device_time.py; {run.log_tail[-300:]}"
            yield bench.line(cause, "a diagnosis", description(run), False, mend)
            continue
        found = diagnose([run, run])
        assert found is not None
        shares = ", ".join(
            f"{name} {share:.0%}"
            for name in ("compute", "data_wait", "host_to_device", "launch", "sync", "other")
            if (share := getattr(run.shares, name))
        )
        yield bench.line(
            f"made: {cause}", cause, f"{found.name}: {shares}", found.name == cause,
            "analysis/device_time.py BEHIND_S, NEAR_S, and report/bottleneck.py WORTH_NAMING; "
            "compare the shares",
        )  # fmt: skip
        kernel = _kernel_ms(asked)
        if cause in {"data_wait", "other", "compute"} and kernel and run.step_ms:
            expected = min(1.0, kernel / run.step_ms)
            off = (run.shares.compute or 0.0) - expected
            yield bench.line(
                f"{cause}: the card's share", f"{expected:.0%} or up to 10 points more, for the "
                "small kernels around it", f"{run.shares.compute or 0:.1%}",
                -SHARE_OFF <= off <= 2 * SHARE_OFF, "advisor/analysis/device_time.py",
            )  # fmt: skip


def _kernel_ms(words: str) -> float | None:
    parts = words.split()
    return float(parts[parts.index("--kernel") + 1]) if "--kernel" in parts else None
