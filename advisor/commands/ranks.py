"""Scaling over ranks: `compare --ranks 1,2,4 -- torchrun --nproc_per_node 1 train.py`."""

import statistics
from collections.abc import Callable, Sequence
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
"""Flags for the number of ranks, by launcher; `launch` is that of accelerate."""
OWN = ("--devices", "--trainer.devices")
"""Flags of programs that start their ranks themselves, as Lightning does."""
GOOD = 0.9
"""Least efficiency that needs no explanation."""
SATURATED = 0.9
"""Least share of the CPUs in use that counts as all of them."""
MOST = 0.5
"""Least share of the lost time that names its cause."""


def counts_of(text: str) -> tuple[int, ...]:
    """Read `1,2,4`. Raises ValueError."""
    counts = tuple(int(part) for part in text.split(","))
    if len(counts) < 2 or min(counts) < 1 or len(set(counts)) < len(counts):
        msg = f"{text}: two or more different numbers of ranks, as in 1,2,4"
        raise ValueError(msg)
    return counts


def with_ranks(command: Sequence[str], count: int) -> list[str]:
    """`command` with `count` ranks. Raises UsageError where no place for it is known."""
    words = list(command)
    starts = [number for number, word in enumerate(words) if PurePath(word).name in LAUNCHERS]
    flags = LAUNCHERS[PurePath(words[starts[0]]).name] if starts else OWN
    for number, word in enumerate(words):
        flag, equals, _ = word.partition("=")
        if flag in flags:
            if equals:
                return [*words[:number], f"{flag}={count}", *words[number + 1 :]]
            return [*words[: number + 1], str(count), *words[number + 2 :]]
    if not starts:
        msg = (
            "--ranks found no number of ranks in the command. Start it by torchrun, accelerate "
            "launch, mpirun or deepspeed, or write its --devices."
        )
        raise UsageError(msg)
    after = starts[0] + 1
    return [*words[:after], flags[0], str(count), *words[after:]]


def cause(first: Sequence[Run], runs: Sequence[Run], cpus: int) -> str:
    """Likely cause of a poor efficiency, against the runs of fewer ranks."""
    busy = statistics.median(run.disturbance.own_cpus or 0.0 for run in runs)
    if busy >= SATURATED * cpus:
        return (
            f"all {numbers.many(cpus, 'CPU')} were busy: give each rank more, or fewer workers and "
            "threads"
        )
    lost = _median(runs, _unit_s) - _median(first, _unit_s)
    if _median(runs, _wait_s) - _median(first, _wait_s) > MOST * lost:
        share = numbers.percent(_median(runs, lambda run: run.wait_share or 0.0))
        return f"the ranks waited for data {share} of the time: faster storage, or more workers"
    return (
        "data and CPUs were free, so the ranks wait for each other: a larger batch for each rank, "
        "or gradients exchanged less often"
    )


def _median(runs: Sequence[Run], read: Callable[[Run], float]) -> float:
    return statistics.median(map(read, runs))


def _unit_s(run: Run) -> float:
    """Time of one rank for one unit."""
    return run.ranks / run.units_per_s


def _wait_s(run: Run) -> float:
    """Time of one rank waiting for the data of one unit."""
    return (run.wait_share or 0.0) * _unit_s(run)
