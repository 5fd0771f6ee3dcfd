"""`gpu-advisor profile --whole`: where the hours of one whole run go."""

from advisor import numbers
from advisor.model import Run, RunPhase

WORK = ("training", "inference")
"""Phases that are counted in steps."""
WORTH = 0.05
"""Share of the run from which a remedy is worth a line."""
REMEDIES = {
    "start": "Start-up is paid once a run: the share falls with longer runs.",
    "between epochs": "persistent_workers=True keeps a loader's workers from epoch to epoch.",
    "validation": "`validation = true` in gpu-advisor.toml lets `optimize` tune its loader.",
    "saving": "Save less often, or copy to the CPU and save in a thread.",
}
GROWTH = 0.01
"""Share of the peak; a smaller growth a minute counts as steady."""


def memo(run: Run) -> str:
    """The memo: the phases first, then host memory and remedies."""
    if not run.phases:
        return (
            "The phases are not known: the probe saw no steps, or the program has several ranks.\n"
            f"{_memory(run)}\n"
        )
    total_s = sum(phase.seconds for phase in run.phases)
    largest = sorted(run.phases, key=lambda phase: -phase.seconds)
    shares = ", ".join(
        f"{phase.name} {numbers.percent(phase.seconds / total_s)}"
        for phase in largest
        if phase.seconds >= 0.01 * total_s
    )
    lines = [f"{numbers.duration(total_s)} of your program: {shares}.", ""]
    lines += [_row(phase, total_s) for phase in run.phases]
    lines += ["", _memory(run)]
    costly = [p.name for p in largest if p.name in REMEDIES and p.seconds >= WORTH * total_s]
    if costly:
        lines += ["", "What would help", *(f"  {name}: {REMEDIES[name]}" for name in costly)]
    return "\n".join(lines) + "\n"


def _row(phase: RunPhase, total_s: float) -> str:
    share = numbers.percent(phase.seconds / total_s)
    row = f"  {phase.name:<15}{numbers.duration(phase.seconds):>12}{share:>7}"
    if phase.name in WORK:
        return f"{row}  {numbers.count(phase.times)} steps"
    if phase.times > 1:
        return f"{row}  {phase.times} times, {numbers.duration(phase.seconds / phase.times)} each"
    return row


def _memory(run: Run) -> str:
    peak, growth = run.peak_host_gib, run.host_growth_gib_per_min
    if peak is None:
        return "Host memory was not measured."
    shown = f"Host memory: at most {numbers.gib(peak)}"
    if growth is None:
        return f"{shown}. The run was too short to tell if it grows."
    if growth < GROWTH * peak:
        return f"{shown}, and steady."
    return f"{shown}. It grows by {numbers.gib(growth)} a minute: something keeps what it loads."
