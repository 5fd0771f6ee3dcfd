"""Diagnostics after the window: the card's work, one step's operations, and the parts alone.

The window is kept, whatever goes wrong here. A few of the program's own next steps are profiled on
a card, and the operations of one. Then the loop runs on with one cached batch in place of its
loader (compute alone), and the loader is rebuilt at several worker counts and drained.
"""

from __future__ import annotations

import time
from typing import Any, Callable

from . import batches, device_busy, step_profile
from .session import Session

LONGEST_S = 10.0
"""Steps to profile that take longer are not waited for."""
WHOLE = 2
"""Steps that begin before one is seen from its begin to its end."""
REPLAY_DISCARDED = 2
REPLAY_LEAST = 3
PATIENCE = 8.0
"""A loader is given this many times the measured seconds, start-up included."""
REBUILT = ("collate_fn", "pin_memory", "worker_init_fn", "generator")
REBUILT_WITH_WORKERS = ("timeout", "multiprocessing_context")
"""Arguments that a rebuilt loader takes over."""

clock = time.perf_counter


class Diagnosis:
    """Diagnostic phases: profiled step, batch replay, loader alone."""

    def __init__(
        self, session: Session, command: dict[str, Any], stop: Callable[[Session], object]
    ) -> None:
        self._session, self._stop = session, stop
        self._boundary = str(command.get("boundary"))
        """Kind of event that ends a step."""
        loader = command.get("loader")
        self._loader = loader if isinstance(loader, int) and loader < len(session.loaders) else None
        self._step_s = float(command.get("step_s") or 0.0)
        self._replays = bool(command.get("replay"))
        self._limit_s = float(session.plan.get("ceilings_s") or 1.5)
        self._busy: device_busy.DeviceBusy | None = None
        self._profile: step_profile.StepProfile | None = None
        self._optimizer: int | None = None
        """Id of the one whose step ends a profiled step."""
        notes = [] if self._loader is not None else ["no DataLoader to replay"]
        self._alone: dict[str, Any] = {"compute_units_per_s": None, "loader": [], "notes": notes}
        self._found: dict[str, Any] = {
            "device_busy": None,
            "flops": None,
            "footprint": None,
            "ceilings": self._alone,
        }
        self._batch: Any = None
        self._count = 0
        self._start = 0.0
        self._phase = "card" if session.device is not None else "step"
        """card, step, alone."""

    def begin(self) -> None:
        """Leave out the profiles of a program with long steps."""
        if WHOLE * self._step_s > LONGEST_S:
            self._found["flops"] = {"why": f"{WHOLE} steps take longer than {LONGEST_S:g} s"}
            self._go_on()
        elif self._phase == "step":
            self._look_at_operations()

    def _look_at_operations(self) -> None:
        """Profile the operations of a step, where torch shows them."""
        self._phase, self._optimizer = "step", None
        why = step_profile.why_not(self._session)
        if why is not None:
            self._found["flops"] = {"why": why}
            self._go_on()

    def unfinished(self) -> str:
        """Note that the program came to its end meanwhile."""
        if self._phase != "alone":
            return "the program ended while a step of it was looked at"
        return "the program did not live through a replayed batch"

    def found(self) -> dict[str, Any]:
        """Entries of the record."""
        return self._found

    def at(self, kind: str, optimizer: Any = None) -> None:
        """Begin or end a profile where a step may end."""
        if self._phase == "alone" or kind != self._boundary:
            return
        if self._optimizer not in (None, id(optimizer)):
            return
        self._optimizer = None if optimizer is None else id(optimizer)
        try:
            if self._phase == "card":
                self._profile_card()
            else:
                self._profile_step(optimizer)
        except Exception as problem:
            self._session.note(f"no profile of the {self._phase}: {problem}")
            if self._phase == "card":
                self._look_at_operations()
            else:
                self._session.fail(problem)
                self._go_on()

    def _profile_card(self) -> None:
        if self._busy is None:
            self._busy = device_busy.DeviceBusy(self._session)
            self._busy.begin()
        elif self._busy.is_over():
            self._found["device_busy"] = self._busy.end()
            self._look_at_operations()

    def _profile_step(self, optimizer: Any) -> None:
        if self._profile is None:
            self._profile = step_profile.StepProfile(self._session, optimizer)
            self._profile.begin()
        else:
            self._found.update(self._profile.end())
            self._go_on()

    def _go_on(self) -> None:
        """Replay a batch, or end the diagnostics."""
        self._phase = "alone"
        if self._loader is None:
            self._stop(self._session)
        elif not self._replays:
            self._finish()

    # --- compute alone ---------------------------------------------------------------------

    def fetch(self, iterator: Any, fetch: Callable[[Any], Any], index: int) -> Any:
        """Return the loader's batch, or the cached one."""
        if index == self._loader:
            self.at("batch")
        if self._phase != "alone" or index != self._loader:
            return fetch(iterator)
        if self._batch is None:
            self._batch = fetch(iterator)
            return batches.copied(self._batch)
        self._count += 1
        done = self._count - REPLAY_DISCARDED
        if done == 0:
            self._synchronize()
            self._start = clock()
        if done >= REPLAY_LEAST and clock() - self._start >= self._limit_s:
            self._synchronize()
            items = self._session.loaders[index]["counter"].count(self._batch)
            self._alone["compute_units_per_s"] = done * items / (clock() - self._start)
            self._finish()
        return batches.copied(self._batch)

    def _synchronize(self) -> None:
        cuda = self._session.torch.cuda
        if cuda.is_initialized():
            cuda.synchronize()

    # --- loader alone ----------------------------------------------------------------------

    def _finish(self) -> None:
        """Drain the loader, and stop."""
        self._session.muted = True
        self._session.attempt(self._drain)
        self._stop(self._session)

    def _drain(self) -> None:
        """Iterate the loader alone at each worker count."""
        facts, notes = self._session.loaders[self._loader or 0], self._alone["notes"]
        loader = facts["loader"]() if facts.get("loader") else None
        if loader is None:
            notes.append("the DataLoader is gone")
            return
        iterator = facts["iterator"]() if facts.get("iterator") else None
        shut_down = getattr(iterator, "_shutdown_workers", None)
        if shut_down is not None:  # the program's own workers must not load along
            shut_down()
        for workers in self._session.plan.get("ceilings_workers") or ():
            alone = f"loader alone with {workers} worker{'s' * (workers != 1)}"
            try:
                again = _rebuilt(self._session.torch, loader, int(workers))
                rate, count = _drained(again, facts, int(workers), self._limit_s)
            except Exception as problem:
                notes.append(f"{alone}: {type(problem).__name__}: {problem}"[:300])
                continue
            if rate is None:
                notes.append(f"{alone}: {count} batches came, too few for a rate")
            else:
                entry = {"workers": int(workers), "units_per_s": rate, "batches": count}
                self._alone["loader"].append(entry)


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


def _drained(
    loader: Any, facts: dict[str, Any], workers: int, seconds: float
) -> tuple[float | None, int]:
    """Units per second and batches counted after warm-up."""
    counter = batches.Counter(facts["counter"].expected)
    began, start, end = clock(), None, 0.0
    items, count = 0.0, 0
    for seen, batch in enumerate(loader, 1):
        now = clock()
        if start is not None:
            items += counter.count(batch)
            count += 1
            end = now
            if now - start >= seconds:
                break
        elif seen >= max(1, workers):
            start = now
        if now - began > PATIENCE * max(seconds, 1.0):
            break
    if start is None or count < 2 or end <= start:
        return None, count
    return items / (end - start), count
