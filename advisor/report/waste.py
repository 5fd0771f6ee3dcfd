"""Work that was for nothing, and where the host waits: padding, and numbers read from tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor import numbers

if TYPE_CHECKING:
    from advisor.model import Run, SyncPoint

MOST_SHOWN = 4
OPERATORS = {"__bool__": "if", "__float__": "float()", "__int__": "int()", "__index__": "an index"}


def lines(run: Run) -> list[str]:
    """A sentence for what of it was seen."""
    return [*_padding(run), *_syncs(run)]


def _padding(run: Run) -> list[str]:
    share = run.effects.padding_share
    if share is None or share < numbers.WORTH_SAYING:
        return []
    compute = run.shares.compute
    most = f", at most {numbers.percent(share * compute)} of the time" if compute else ""
    return [
        (
            f"Of the positions of its batches {100 * share:.1f} % are padding, on which the model "
            f"works for nothing{most}: every batch was counted."
        )
    ]


def _syncs(run: Run) -> list[str]:
    """On a device with what each costs; on a CPU as what they would be on a device."""
    found = [point for point in run.syncs if point.ms is None or _share(run, point) is not None]
    if not found:
        return []
    sites = list(dict.fromkeys(point.site for point in found))
    shown = ", ".join(
        f"`{site}` ({'; '.join(_point(run, point) for point in found if point.site == site)})"
        for site in sites[:MOST_SHOWN]
    )
    left = len(sites) - MOST_SHOWN
    more = f", and at {numbers.many(left, 'other line')}" if left > 0 else ""
    if found[0].ms is None:
        return [
            (
                f"Numbers go from tensors to the host at {shown}{more}. On a CPU that waits for "
                "nothing; on a GPU the host would wait there until all that was queued is done."
            )
        ]
    return [f"The host waits for the GPU at {shown}{more}."]


def _point(run: Run, point: SyncPoint) -> str:
    call = OPERATORS.get(point.call, f".{point.call}()")
    times = (
        "once" if round(point.per_step, 1) == 1 else f"{numbers.measure(point.per_step, 3)} times"
    )
    told = f"`{call}`, {times} a step"
    if point.ms is not None:
        each = numbers.duration(point.ms / 1000, 3)
        told += f", {each} each, {numbers.percent(_share(run, point))} of the time"
    return told


def _share(run: Run, point: SyncPoint) -> float | None:
    """Part of the time that the host waits there; None where that is not known."""
    if point.ms is None or not run.step_ms:
        return None
    return min(1.0, point.per_step * point.ms / run.step_ms)
