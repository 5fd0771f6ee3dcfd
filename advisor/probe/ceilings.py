"""Each part alone, in the same process, after the window was measured.

Compute alone: the program's own loop runs on with one cached batch in place of its loader.
Loader alone: the program's own DataLoader, rebuilt at several worker counts, is drained.
Whatever goes wrong here is a note; the measured window is already kept.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from . import batches, steps
from .session import Session

clock = time.perf_counter

REPLAY_DISCARDED = 2
REPLAY_LEAST = 3
PATIENCE = 8.0
"""A loader is given this many times the measured seconds, start-up included."""


class Replay:
    """Stands in for the measured loader until compute alone is known."""

    def __init__(self, session: Session, loader: int, batch: Any, items: float) -> None:
        self._session = session
        self._loader = loader
        self._batch = batch
        self._items = items
        self._count = 0
        self._start = 0.0
        self._limit_s = float(session.plan.get("ceilings_s") or 1.5)

    def covers(self, number: int) -> bool:
        """Whether this loader is the measured one."""
        return number == self._loader

    def next(self) -> tuple[Any, bool]:
        """The cached batch, and whether compute alone is known by now."""
        self._count += 1
        if self._count == REPLAY_DISCARDED:
            _synchronize()
            self._start = clock()
        done = self._count - REPLAY_DISCARDED
        if done >= REPLAY_LEAST and clock() - self._start >= self._limit_s:
            _synchronize()
            rate = done * self._items / (clock() - self._start)
            _found(self._session)["compute_units_per_s"] = rate
            return None, True
        return batches.copied(self._batch), False


def begin(session: Session, measured: dict[str, Any]) -> bool:
    """Start the replay if there is a loader to stand in for; else take the window without its
    waits for compute alone. Returns whether a replay was started."""
    ledger = session.ledger
    found = _found(session)
    if ledger is None or ledger.loader is None:
        found["notes"].append("no DataLoader to replay")
        return False
    if ledger.kind == steps.FORWARD or session.kept_batch is None:
        share = measured.get("wait_share") or 0.0
        if share < 1.0:
            found["compute_units_per_s"] = measured["units_per_s"] / (1.0 - share)
            found["notes"].append("compute alone is the window without its waits")
        return False
    number, batch, items = session.kept_batch
    if number != ledger.loader:
        found["notes"].append("no batch of the measured loader was kept")
        return False
    session.replay = Replay(session, number, batch, items)
    return True


def drain_loaders(session: Session) -> None:
    """Iterate the program's DataLoader alone at each worker count of the plan."""
    ledger, found = session.ledger, _found(session)
    if ledger is None or ledger.loader is None:
        return
    facts = session.log.loaders[ledger.loader]
    loader = facts["loader"]() if facts.get("loader") else None
    if loader is None:
        found["notes"].append("the DataLoader is gone")
        return
    _release(facts)
    seconds = float(session.plan.get("ceilings_s") or 1.5)
    for workers in session.plan.get("ceilings_workers") or ():
        try:
            again = _rebuilt(session.torch, loader, int(workers))
            rate, count = _drained(again, facts, int(workers), seconds)
        except Exception as problem:
            found["notes"].append(
                f"{_alone(int(workers))}: {type(problem).__name__}: {problem}"[:300]
            )
            continue
        if rate is None:
            found["notes"].append(too_few(int(workers), count))
        else:
            found["loader"].append({"workers": int(workers), "units_per_s": rate, "batches": count})


def too_few(workers: int, count: int) -> str:
    """That so many batches tell no rate."""
    batches = "1 batch" if count == 1 else f"{count} batches"
    return f"{_alone(workers)}: {f'only {batches}' if count else 'no batch'} came"


def _alone(workers: int) -> str:
    return f"loader alone with {workers} worker{'s' * (workers != 1)}"


def _found(session: Session) -> dict[str, Any]:
    if session.ceilings is None:
        session.ceilings = {"compute_units_per_s": None, "loader": [], "notes": []}
    return session.ceilings


def _release(facts: dict[str, Any]) -> None:
    """The program's own workers must not load along."""
    held = facts.get("iterator")
    iterator = held() if held is not None else None
    shut_down = getattr(iterator, "_shutdown_workers", None)
    if shut_down is not None:
        shut_down()


def _rebuilt(torch: Any, loader: Any, workers: int) -> Any:
    data = torch.utils.data
    options: dict[str, Any] = {
        "num_workers": workers,
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "worker_init_fn": loader.worker_init_fn,
        "generator": loader.generator,
    }
    if workers:
        options["prefetch_factor"] = loader.prefetch_factor or 2
        options["timeout"] = loader.timeout
        options["multiprocessing_context"] = loader.multiprocessing_context
    own = loader.batch_sampler
    if isinstance(loader.dataset, data.IterableDataset):
        options.update(batch_size=loader.batch_size, drop_last=loader.drop_last)
    elif own is None:
        options.update(batch_size=None, sampler=loader.sampler)
    elif type(own) is data.BatchSampler:
        options.update(batch_size=own.batch_size, sampler=own.sampler, drop_last=own.drop_last)
    else:
        options["batch_sampler"] = own
    return data.DataLoader(loader.dataset, **options)


def _drained(
    loader: Any, facts: dict[str, Any], workers: int, seconds: float
) -> tuple[float | None, int]:
    """(units/s or None, batches counted) after one batch of each worker has come."""
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


def _synchronize() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
