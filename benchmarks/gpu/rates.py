"""Steps: rates against the program's own events, and causes that were made."""

from collections.abc import Iterator
from typing import Any

from advisor import numbers
from advisor.model import Override, Run
from advisor.report.bottleneck import diagnose
from benchmarks.gpu.bench import Bench, description, own_rate
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
    "whole-step CUDA graphs": "probe/cuda_events.py: were replays counted, was the capture cut?",
}

CAUSES = {
    "data_wait": "--train --loader --fetch 30 --kernel 10",
    "other": "--train --loader --host 60 --kernel 15",
    "launch": "--train --loader --small 400",
    "host_to_device": "--train --loader --copied 256 --kernel 5",
    "sync": "--train --loader --host 12 --kernel 14 --item",
    "compute": "--train --loader --host 2 --kernel 60",
}
ON_A_SIMULATED_CARD = {"host_to_device": "--train --loader --copied 8 --kernel 5"}
LOOP = "--train --loader --kernel 8"


def overriding(knob: str, value: str | bool = True) -> dict[str, Any]:
    """What a plan adds for it."""
    return {"overrides": (Override(knob=knob, value=value),)}


PAIRS: dict[str, tuple[str, dict[str, Any], dict[str, Any], tuple[float, float]]] = {
    "cudnn.benchmark in a fresh process": (
        "--train --loader", {}, overriding("cudnn_benchmark"), (0.97, 9.0),
    ),
    "compile, launch-bound": (
        "--train --loader --small 400", {}, overriding("compile"), (0.97, 99.0),
    ),
    "reduce-overhead, launch-bound": (
        "--train --loader --small 400", {}, overriding("compile", "reduce-overhead"), (0.97, 99.0),
    ),
    "with telemetry": (LOOP, {"telemetry": False}, {}, (0.98, 1.02)),
    "30 s against 2 s": (LOOP, {"measure_s": 2.0}, {"measure_s": 30.0}, (0.95, 1.05)),
}  # fmt: skip
"""Words of the loop, both plans, and the ratio of their rates that is expected."""
FEW_PAIRS = ("cudnn.benchmark in a fresh process", "with telemetry")
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


def pairs(bench: Bench) -> Iterator[Line]:
    """Two runs each in fresh processes, and the ratio of their rates."""
    for name, (words, before, after, (low, high)) in PAIRS.items():
        if bench.simulated and name not in FEW_PAIRS:
            continue
        one = bench.measured(*words.split(), limit_s=120.0, **before)
        two = bench.measured(*words.split(), limit_s=120.0, **after)
        if not isinstance(one, Run) or not isinstance(two, Run):
            found = f"{description(one)} and {description(two)}"
            yield bench.line(name, "two rates", found, False, "run the loop by hand")
            continue
        ratio, seen = two.units_per_s / one.units_per_s, two.telemetry
        beside_load = one.disturbance.disturbed or two.disturbance.disturbed
        yield bench.line(
            name, f"{low:g} to {high:g} times the rate",
            f"{ratio:.3f}: {one.units_per_s:.5g} and {two.units_per_s:.5g}/s, first steps after "
            f"{one.startup_s or 0:.1f} and {two.startup_s or 0:.1f} s, {seen.sm_clock_mhz} MHz, "
            f"{', '.join(name for name, _ in seen.event_reasons) or 'no event reasons'}"
            f"{'; beside load, which decides nothing' if beside_load else ''}",
            None if bench.simulated or beside_load else low <= ratio <= high,
            "a clock that falls: throttling; an override that did not apply: probe/overrides.py",
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
        shares += f"; NVML's utilisation {numbers.number(run.telemetry.gpu_util_pct)} %"
        right = found.name == cause
        by_load = not right and run.disturbance.disturbed is True  # a slow host has causes, too
        shares += "; beside load, which decides nothing" if by_load else ""
        yield bench.line(
            f"made: {cause}", cause, f"{found.name}: {shares}", None if by_load else right,
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
