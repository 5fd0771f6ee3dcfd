"""Diagnostics after the window: the operations of one step, and the loader alone.

The window is kept, whatever goes wrong here. One of the program's own next steps is profiled. Then
the loader is rebuilt at several worker counts and drained.
"""

from __future__ import annotations

import time
from typing import Any, Callable

from . import batches, op_trace, step_profile
from .session import Session

LONGEST_S = 10.0
"""Steps to profile that take longer are not waited for."""
WHOLE = 2
"""Steps that begin before one is seen from its begin to its end."""
PATIENCE = 8.0
"""A loader is given this many times the measured seconds, start-up included."""
REBUILT = ("collate_fn", "pin_memory", "worker_init_fn", "generator")
REBUILT_WITH_WORKERS = ("timeout", "multiprocessing_context")
"""Arguments that a rebuilt loader takes over."""

clock = time.perf_counter


class Diagnosis:
    """Profile of a step, then the loader alone."""

    def __init__(
        self, session: Session, command: dict[str, Any], stop: Callable[[Session], object]
    ) -> None:
        self._session, self._stop = session, stop
        self._boundary = str(command.get("boundary"))
        """Kind of event that ends a step."""
        loader = command.get("loader")
        self.loader = loader if isinstance(loader, int) and loader < len(session.loaders) else None
        self._step_s = float(command.get("step_s") or 0.0)
        self._limit_s = float(session.plan.get("ceilings_s") or 1.5)
        self._traces = bool(session.plan.get("trace"))
        self._profile: step_profile.StepProfile | op_trace.OpTrace | None = None
        self._optimizer: int | None = None
        """Id of the one whose step ends a profiled step."""
        self._rates: list[dict[str, Any]] = []
        self._flops: dict[str, Any] = {}
        """Entries of the record."""

    def begin(self) -> None:
        """Leave out the profile where torch shows nothing, or steps are long."""
        why = step_profile.why_not(self._session)
        if WHOLE * self._step_s > LONGEST_S and not self._traces:
            why = f"{WHOLE} steps take longer than {LONGEST_S:g} s"
        if why is not None:
            self._flops = {"flops": {"why": why}}
            self._drain_and_stop()

    def found(self) -> dict[str, Any]:
        """Entries of the record."""
        return {**self._flops, "ceilings": self._rates}

    def at(self, kind: str, optimizer: Any = None) -> None:
        """Begin or end the profile where a step may end."""
        if kind != self._boundary or self._optimizer not in (None, id(optimizer)):
            return
        self._optimizer = None if optimizer is None else id(optimizer)
        try:
            if self._profile is None:
                watch = op_trace.OpTrace if self._traces else step_profile.StepProfile
                self._profile = watch(self._session, optimizer)
                self._profile.begin()
                return
            self._flops = self._profile.end()
        except Exception as problem:
            self._session.fail(problem)
        self._drain_and_stop()

    # --- loader alone ----------------------------------------------------------------------

    def _drain_and_stop(self) -> None:
        self._session.muted = True
        if self.loader is not None and not self._traces:
            self._session.attempt(self._drain, self._session.loaders[self.loader])
        self._stop(self._session)

    def _drain(self, facts: dict[str, Any]) -> None:
        """Iterate the loader alone at each worker count."""
        loader, iterator = (facts[name]() if name in facts else None for name in HELD)
        if loader is None:
            self._session.note("the DataLoader is gone, and was not measured alone")
            return
        shut_down = getattr(iterator, "_shutdown_workers", None)
        if shut_down is not None:  # the program's own workers must not load along
            shut_down()
        for workers in map(int, self._session.plan.get("ceilings_workers") or ()):
            try:
                again = _rebuilt(self._session.torch, loader, workers)
                rate = _drained(again, facts["counter"].expected, workers, self._limit_s)
            except Exception as problem:
                alone = f"loader alone with {workers} worker{'s' * (workers != 1)}"
                self._session.note(f"{alone}: {type(problem).__name__}: {problem}")
                continue
            if rate is not None:
                self._rates.append({"workers": workers, "units_per_s": rate})


HELD = ("loader", "iterator")


def _rebuilt(torch: Any, loader: Any, workers: int) -> Any:
    data, own = torch.utils.data, loader.batch_sampler
    options = {name: getattr(loader, name) for name in REBUILT}
    options["num_workers"] = workers
    if workers:
        options.update({name: getattr(loader, name) for name in REBUILT_WITH_WORKERS})
        options["prefetch_factor"] = loader.prefetch_factor or 2
    if isinstance(loader.dataset, data.IterableDataset):
        options.update(batch_size=loader.batch_size, drop_last=loader.drop_last)
    elif own is None:
        options.update(batch_size=None, sampler=loader.sampler)
    else:
        options["batch_sampler"] = own
    return data.DataLoader(loader.dataset, **options)


def _drained(loader: Any, expected: float | None, workers: int, seconds: float) -> float | None:
    """Units per second after warm-up; None of too few batches."""
    counter = batches.Counter(expected)
    began = now = clock()
    start, items, times = float("inf"), 0.0, 0
    for seen, batch in enumerate(loader, 1):
        now = clock()
        if seen == max(1, workers):
            start = now
        elif now > start:
            items += counter.count(batch)
            times += 1
        if now - start >= seconds or now - began > PATIENCE * max(seconds, 1.0):
            break
    return items / (now - start) if times > 1 else None
