"""Steps: memory that runs out, comes back, or is capped to that of a smaller card."""

from collections.abc import Iterator

from advisor.model import Run
from benchmarks.gpu.bench import Bench, description
from benchmarks.gpu.record import Line

CAPS_GIB = (8.0, 24.0)
SPARE_GIB = 1.0
"""Under a cap this much less must fit."""
LOOP = ("--train", "--kernel", "4")


def out_of_memory(bench: Bench) -> Iterator[Line]:
    """What runs out is named, what halves its batch is measured, and the next program runs."""
    total = bench.total_gib
    result = bench.measured(*LOOP, "--hungry", f"{2 * total:.2f}", limit_s=60.0)
    yield bench.line(
        "a batch twice the card", "gpu-oom", description(result),
        not isinstance(result, Run) and result.kind == "gpu-oom",
        "advisor/runner/classify.py: the words are in what was found",
    )  # fmt: skip
    result = bench.measured(*LOOP, "--hungry", f"{0.9 * bench.free_gib:.2f}", limit_s=60.0)
    yield bench.line(
        "a batch of nine tenths of the free memory", "a run, its retries told", description(result)
        + (f", {result.held_gib or 0:.1f} GiB; {'; '.join(result.notes)}"
           if isinstance(result, Run) else ""),
        isinstance(result, Run), "advisor/runner/classify.py: which count made it a failure?",
    )  # fmt: skip
    result = bench.measured(*LOOP, "--hungry", f"{1.5 * total:.2f}", "--halve", limit_s=60.0)
    halved = isinstance(result, Run) and result.effects.batch == 16
    yield bench.line(
        "a program that halves its batch", "a run at 16, and a note",
        f"batch {result.effects.batch:g}, {'; '.join(result.notes)}"
        if isinstance(result, Run) else description(result),
        halved and any("memory ran out" in note for note in result.notes),
        "advisor/probe/session.py ran_out, measure.py _shrunk_from, trials/classify.py _swallowed",
    )  # fmt: skip
    result = bench.measured(*LOOP, limit_s=60.0)
    yield bench.line(
        "the next program", "a run, its memory told", description(result)
        + (f", {result.held_gib or 0:.3f} GiB held" if isinstance(result, Run) else ""),
        isinstance(result, Run) and bool(result.peak_device_gib),
        "does a process of the one before still hold the card? nvidia-smi",
    )  # fmt: skip


def caps(bench: Bench) -> Iterator[Line]:
    """Under a cap the card gives what a smaller one would, and not more."""
    for cap_gib in CAPS_GIB[:1] if bench.simulated else CAPS_GIB:
        if cap_gib >= bench.total_gib:
            yield bench.line(f"a cap of {cap_gib:g} GiB", "", "the card has no more", None)
            continue
        less, more = cap_gib - SPARE_GIB, cap_gib + SPARE_GIB
        fits = bench.measured(*LOOP, "--hungry", str(less), memory_cap_gib=cap_gib, limit_s=60.0)
        yield bench.line(
            f"{less:g} GiB under a cap of {cap_gib:g}", "it fits", description(fits),
            isinstance(fits, Run), "advisor/probe/overrides.py _cap_memory: was it put in?",
        )  # fmt: skip
        over = bench.measured(*LOOP, "--hungry", str(more), memory_cap_gib=cap_gib, limit_s=60.0)
        yield bench.line(
            f"{more:g} GiB under a cap of {cap_gib:g}", "gpu-oom", description(over),
            not isinstance(over, Run) and over.kind == "gpu-oom",
            "advisor/probe/overrides.py _cap_memory: expandable segments may not heed the fraction",
        )  # fmt: skip
