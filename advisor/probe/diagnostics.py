"""Diagnostics after the window, which is kept whatever fails here.

Each wait is bounded, and ours: loader workers that never answer, a step that never ends and
a dataset that waits for the program, which waits for us, end the diagnosis and nothing else.
"""

from __future__ import annotations

import threading
from typing import Any, Callable

from . import asked_twice, batches, host_costs, op_trace, work_facts
from .clocks import clock
from .session import Session

LONGEST_S = 10.0
"""Seconds that the steps of a profile may take; longer ones are not profiled.

Judgement: shorter leaves slow programs without their FLOPs, longer adds as much to their baseline.
"""
WHOLE = 2
"""Steps that begin before one is seen whole.

The first begins amid one that is under way. Judgement: more cost time and show nothing new."""
PATIENCE = 8.0
"""A loader gets this many times the measured seconds, start-up included."""
TWICE_S = 5 * asked_twice.LONGEST_S
"""Longest time to ask for items twice."""
REBUILT = ("collate_fn", "pin_memory", "worker_init_fn", "generator")
REBUILT_WITH_WORKERS = ("multiprocessing_context",)
"""Arguments that a rebuilt loader takes over."""


class Diagnosis:
    """Profile of one of the next steps, then the loader alone.

    Both change what they look at, so neither may run before the rate stands: a profile slows
    its step, and before the loader is run alone the program's own workers are shut down.
    """

    def __init__(
        self, session: Session, command: dict[str, Any], stop: Callable[[Session], object]
    ) -> None:
        self._session, self._stop = session, stop
        self._boundary = command["boundary"]
        """Kind of event that ends a step."""
        self._root: int | None = command["root"]
        """Module whose calls end steps, where calls do: one of several networks."""
        self.loader: int | None = command["loader"]
        self._step_s = float(command["step_s"])
        self._lists = bool(session.plan.get("trace"))
        self._profile: op_trace.OpTrace | None = None
        self._optimizer: int | None = None
        """Id of the one whose step ends a profiled step."""
        session.facts["ceilings"] = []

    def begin(self) -> None:
        """Leave out the profile if torch shows nothing, or steps are long."""
        reason = op_trace.why_not(self._session)
        if WHOLE * self._step_s > LONGEST_S and not self._lists:
            reason = f"{WHOLE} steps take longer than {LONGEST_S:g} s"
        if not self._lists:
            limit = threading.Timer(self._limit_s(), self._give_up)
            limit.daemon = True
            limit.start()
        if reason is not None:
            self._session.facts["flops"] = {"why": reason}
            self._drain_and_stop()

    def _limit_s(self) -> float:
        """Longest time for all of it."""
        plan = self._session.plan
        parts = len(plan["ceilings_workers"]) * patience_s(plan["ceilings_s"])
        return LONGEST_S + WHOLE * self._step_s + parts + TWICE_S

    def _give_up(self) -> None:
        """Stop from another thread: the one at work waits for something."""
        self._session.note("the parts after the window took too long and were left out")
        self._stop(self._session)

    def at(self, kind: str, optimizer: Any = None, module: Any = None) -> None:
        """Begin or end the profile where a step may end."""
        if kind != self._boundary or self._optimizer not in (None, id(optimizer)):
            return
        if kind == "call" and self._root not in (None, module):
            return
        self._optimizer = None if optimizer is None else id(optimizer)
        try:
            if self._profile is None:
                self._profile = op_trace.OpTrace(
                    self._session, optimizer, lists=self._lists
                )
                self._profile.begin()
                return
            self._session.facts.update(self._profile.end())
        except Exception as problem:
            self._session.fail(problem)
        self._drain_and_stop()

    def _drain_and_stop(self) -> None:
        for facts in self._session.loaders:  # items made from here on are not the program's
            self._session.attempt(work_facts.look_again, self._session, facts)
        self._session.muted = True
        if self.loader is not None and not self._lists:
            self._session.attempt(self._drain, self.loader)
        self._stop(self._session)

    def _drain(self, index: int) -> None:
        """Iterate the loader alone at each worker count."""
        facts = self._session.loaders[index]
        loader, iterator = facts["loader"](), facts["iterator"]()
        shut_down = getattr(iterator, "_shutdown_workers", None)
        if shut_down is not None:  # the program's workers must not load along
            shut_down()
        plan = self._session.plan
        self._session.attempt(self._ask_twice, facts, loader.dataset)
        for workers in plan["ceilings_workers"]:
            try:
                again = _rebuilt(
                    self._session.torch, loader, workers, patience_s(plan["ceilings_s"])
                )
                ceiling = _drained(
                    again, facts["counter"].expected, workers, plan["ceilings_s"]
                )
            except Exception as problem:
                alone = f"loader alone with {workers} worker{'s' * (workers != 1)}"
                self._session.note(f"{alone}: {type(problem).__name__}: {problem}")
                if workers:  # more of them would not answer either
                    break
                continue
            if ceiling is not None:
                self._session.facts["ceilings"].append({"workers": workers, **ceiling})

    def _ask_twice(self, facts: dict[str, Any], dataset: Any) -> None:
        """Ask for items twice where the main process makes them, and any number is an item."""
        if (
            facts["work"].iterable
            or facts["arguments"].get("num_workers")
            or facts["length"] is None
        ):
            return
        try:
            self._session.facts.update(asked_twice.answers(self._session, dataset))
        except Exception:  # its samplers give no numbers, or it needs the program's loop
            pass


def patience_s(seconds: float) -> float:
    """Longest time for a loader that is measured for `seconds`."""
    return PATIENCE * max(seconds, 1.0)


def _rebuilt(torch: Any, loader: Any, workers: int, patience: float) -> Any:
    data, batch_sampler = torch.utils.data, loader.batch_sampler
    options = {name: getattr(loader, name) for name in REBUILT}
    options["num_workers"] = workers
    if workers:
        options.update({name: getattr(loader, name) for name in REBUILT_WITH_WORKERS})
        options["timeout"] = min(loader.timeout or patience, patience)
        options["prefetch_factor"] = loader.prefetch_factor or 2
    if isinstance(loader.dataset, data.IterableDataset):
        options.update(batch_size=loader.batch_size, drop_last=loader.drop_last)
    elif batch_sampler is None:
        options.update(batch_size=None, sampler=loader.sampler)
    else:
        options["batch_sampler"] = batch_sampler
    return data.DataLoader(loader.dataset, **options)


def _drained(
    loader: Any, expected: float | None, workers: int, seconds: float
) -> dict[str, Any] | None:
    """Units per second after warm-up, and what they cost; None of too few batches.

    Warm-up is a batch of each worker: until then they start. `seconds` is the time measured
    after it; `expected` the items asked for in a batch.
    """
    counter = batches.ItemCount(expected)
    free_gib = host_costs.free_shm_gib()
    began = now = clock()
    start, items, times, used_s = float("inf"), 0.0, 0, None
    iterator = iter(loader)
    pids = [worker.pid for worker in getattr(iterator, "_workers", ())]
    for seen, batch in enumerate(iterator, 1):
        now = clock()
        if seen == max(1, workers):
            start, used_s = now, host_costs.cpu_s(pids)
        elif now > start:
            items += counter.count(batch)
            times += 1
        if now - start >= seconds or now - began > patience_s(seconds):
            break
    if times < 2:
        return None
    took_s = host_costs.less(host_costs.cpu_s(pids), used_s)
    return {
        "units_per_s": items / (now - start),
        "busy_cpus": None if took_s is None else took_s / (now - start),
        "worker_gib": host_costs.own_gib(pids),
        "shm_gib": host_costs.less(free_gib, host_costs.free_shm_gib()),
        "free_shm_gib": free_gib,
    }
