"""Numbers of ranks: where a command names them, and why more of them gain little."""

import statistics
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from advisor import numbers
from advisor.errors import UsageError
from advisor.model import Run

PROCESSES = ("--nproc_per_node", "--nproc-per-node")
LAUNCHERS = {
    "torchrun": PROCESSES,
    "torch.distributed.run": PROCESSES,
    "torch.distributed.launch": PROCESSES,
    "launch": ("--num_processes", "--num-processes"),
    "deepspeed": ("--num_gpus",),
    "mpirun": ("-np", "-n", "--np"),
    "mpiexec": ("-n", "-np", "--np"),
}
"""Flags for the number of ranks, by launcher; `launch` is accelerate's."""
OWN = ("--devices", "--trainer.devices")
"""Flags of programs that start their ranks themselves, like Lightning."""
GOOD_EFFICIENCY = 0.9
"""Least efficiency that needs no explanation; judgement: to mend a loss of a tenth hardly pays."""
SATURATED = 0.9
"""Least share of busy CPUs that counts as all."""
MOST_LOST = 0.5
"""Least share of lost time that names its cause: more than all others together."""


def counts_of(text: str) -> tuple[int, ...]:
    """Read `1,2,4`. Raises ValueError."""
    counts = tuple(int(part) for part in text.split(","))
    if len(counts) < 2 or min(counts) < 1 or len(set(counts)) < len(counts):
        msg = f"{text}: two or more different numbers of ranks, as in 1,2,4"
        raise ValueError(msg)
    return counts


def with_ranks(command: Sequence[str], count: int) -> list[str]:
    """Set the ranks of `command`. Raises UsageError without a place."""
    words = list(command)
    starts = [
        number for number, word in enumerate(words) if PurePath(word).name in LAUNCHERS
    ]
    flags = LAUNCHERS[PurePath(words[starts[0]]).name] if starts else OWN
    for number, word in enumerate(words):
        flag, equals, _ = word.partition("=")
        if flag in flags:
            new = [f"{flag}={count}"] if equals else [flag, str(count)]
            return [*words[:number], *new, *words[number + len(new) :]]
    if not starts:
        msg = (
            "--ranks found no number of ranks in the command. Start it by torchrun, accelerate "
            "launch, mpirun or deepspeed, or write its --devices."
        )
        raise UsageError(msg)
    after = starts[0] + 1
    return [*words[:after], flags[0], str(count), *words[after:]]


def what_limits(first: Sequence[Run], runs: Sequence[Run], cpus: int) -> str:
    """Likely cause of a poor efficiency, against fewer ranks.

    Busy CPUs and longer waits for data are measured. What neither explains is left to the
    exchange between ranks, whose share is told where it was measured. What could not be measured
    is said, and was not free for that.
    """
    busy = _median(run.disturbance.own_cpus for run in runs)
    if busy is not None and busy >= SATURATED * cpus:
        listed = numbers.many(cpus, "CPU")
        return f"all {listed} were busy: give each rank more, or fewer workers and threads"
    lost = statistics.median(map(_unit_s, runs)) - statistics.median(map(_unit_s, first))
    before, after = _median(map(_wait_s, first)), _median(map(_wait_s, runs))
    longer = None if before is None or after is None else after - before
    if longer is not None and longer > MOST_LOST * lost:
        share = numbers.percent(_median(run.wait_share for run in runs))
        return f"the ranks waited for data {share} of the time: faster storage, or more workers"
    exchange = _median(run.shares.exchange for run in runs)
    share = "" if exchange is None else f" {numbers.percent(exchange)} of the time"
    help_ = "Give each rank a larger batch, or exchange gradients less often"
    unseen = ["waits for data"] * (longer is None) + ["busy CPUs"] * (busy is None)
    if not unseen:
        return f"data and CPUs were free, so the ranks wait for each other{share}. {help_}"
    wait = "wait" if share else "may wait"
    missing = f"{' and '.join(unseen)} were not measured"
    return f"the ranks {wait} for each other{share} ({missing}). {help_}"


def _median(values: Iterable[float | None]) -> float | None:
    """Of values that were all measured; None otherwise."""
    given = list(values)
    measured = [value for value in given if value is not None]
    return statistics.median(measured) if len(measured) == len(given) else None


def _unit_s(run: Run) -> float:
    """Time of a rank for a unit."""
    return run.ranks / run.units_per_s


def _wait_s(run: Run) -> float | None:
    """Time that a rank waits for a unit's data; None without a loader."""
    return None if run.wait_share is None else run.wait_share * _unit_s(run)
