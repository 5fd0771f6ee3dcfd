"""More loader workers than CPUs, where the workers sleep.

A worker that waits for a disk, a network or a server needs no CPU meanwhile, so the number of
CPUs bounds nothing. The first baseline runs the loader alone at up to as many workers as CPUs
and tells the CPU time that they took. Where it was little, the next one runs the loader alone
at two, four and eight times as many. Memory, and room in /dev/shm, bound them.
"""

from advisor.model import LoaderCeiling
from advisor.tuner import policy
from advisor.tuner.state import TunerState


def counts(state: TunerState) -> tuple[int, ...]:
    """Counts beyond the CPUs that the loader alone is worth running at; none at first."""
    cpus = state.context.cpus
    if not state.originals or not state.waits or max(state.loader_alone, default=0) > cpus:
        return ()
    seen = [ceiling for ceiling in state.originals[0].ceilings if ceiling.workers]
    if not seen:
        return ()
    limit = room(state, max(seen, key=lambda ceiling: ceiling.workers))
    return tuple(times * cpus for times in policy.WORKERS_A_CPU if times * cpus <= limit)


def room(state: TunerState, seen: LoaderCeiling) -> float:
    """Workers that CPUs, memory and /dev/shm have room for, by what some of them took."""
    if seen.busy_cpus is None:
        return 0
    parts = [
        policy.MOST_WORKERS,
        seen.workers * state.context.cpus / max(seen.busy_cpus, 1e-3),
    ]
    if seen.worker_gib:
        parts.append(
            policy.WORKERS_MEMORY_SHARE * state.context.host_memory_gib / seen.worker_gib
        )
    if seen.shm_gib and seen.free_shm_gib is not None:
        parts.append(
            seen.workers * policy.WORKERS_MEMORY_SHARE * seen.free_shm_gib / seen.shm_gib
        )
    return min(parts)


def faster(state: TunerState) -> set[int]:
    """Counts beyond the CPUs at which the loader alone was faster than at any fewer."""
    rates, faster_counts = state.loader_alone, set()
    for workers in sorted(rates):
        fewer = [rate for count, rate in rates.items() if count < workers]
        beyond = workers > state.context.cpus
        if beyond and rates[workers] > (1 + state.tie_threshold) * max(fewer, default=0.0):
            faster_counts.add(workers)
    return faster_counts
