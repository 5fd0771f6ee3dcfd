"""What the probe's records say about one trial: the measured part of a Run.

A trial's records directory holds, for each process of the user's program that Python started:

`boot-<pid>.json`   {pid, ppid, argv, time, python, executable}: the probe was loaded
`<pid>.json`        the record: of a process that came to steps, imported torch, wrote files, or
                    ended by an exception
`stacks-<pid>.txt`  stacks of all threads, one set for each SIGUSR1
`stop.json`         {kind, count}: the step after which all ranks stop

The record (version 1; times are epoch seconds, `null` is "not measured"):

    state              booted | torch | stepping | stopped | exited
    alone              the window is full, the parts are being measured alone
    steps              optimizer steps, or else loader batches or root forwards, whichever are more
    counts             {optimizer_steps, loader_batches, root_forwards, inner_forwards,
                       backwards, dropped}
    boot_time first_step_time last_step_time time
    rank world_size pid ppid argv python torch
    exception          {type, message, where: import|start|step, tail} that ended the process
    swallowed          [{type, message, where}] raised inside a forward or backward
    guard              path of the user's whose overwriting was refused (the process left with 97)
    writes             files opened for writing outside the trial's scratch
    errors notes       of the probe itself

and, once the process stopped or exited:

    measured           null, or {kind, source, units, units_per_s, window_start, window_end,
                       parts, steps, step_ms, wait_share, backward_share, shares, whole_units,
                       finished_batches, batch, batches_per_step, forwards_per_unit, clock, notes};
                       parts: [start, end, units, marks] of each stretch of the window
    loaders loader     every DataLoader {site, dataset, length, asked_batch, workers, prefetch,
                       persistent, pin, padding_share, tokens_per_item, ...}; index of the measured
                       one
    roots root         every module called from outside a module; index of the dominant one
    seen               {device, model_dtype, compute_dtype, autocast_dtype, compiled,
                       channels_last, tf32, cudnn_benchmark} of the dominant root
    accumulation input_shapes losses fingerprint arguments defaulted set_to_none cpus
    whatif             null, or {name, applied, why, cost_s, caution}
    memory             {allocated_gib, reserved_gib, alloc_retries, ooms, rss_gib,
                       workers_rss_gib}
    ceilings           null, or {compute_units_per_s, loader: [{workers, units_per_s}], notes}
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from advisor.model import Ceilings, Effects, JsonScalar, LoaderCeiling, Shares, WhatIfOutcome
from advisor.trials.disturbance import Part

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.model import Trial

Record = dict[str, Any]

STRAGGLES = 0.05
"""Difference in the ranks' shares of backward, in which they wait for each other."""
OOM_WORDS = ("out of memory", "can't allocate memory", "cannot allocate memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramException:
    """An exception of the user's program."""

    type: str
    message: str
    where: str
    """import, start or step if it ended the process; forward or backward if it was caught."""
    fatal: bool
    tail: str = ""
    """End of the traceback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the probe can know of a Run; the names are those of `advisor.model.Run`."""

    state: str
    """stopped (by the probe, the window is full) or exited (by itself)."""
    units: float
    units_per_s: float
    rate_source: str
    window_start: float
    window_end: float
    parts: tuple[tuple[Part, ...], ...] = ()
    """Of each process' window, in the order of the ranks."""
    step_ms: float
    step_kind: str
    steps: int
    """Since the process began, of the rank that made most."""
    wait_share: float | None = None
    shares: Shares = field(default_factory=Shares)
    whole_units: float = 0.0
    peak_mem_gib: float | None = None
    peak_reserved_gib: float | None = None
    """What the device allocator held, freed blocks included; None without a device."""
    peak_host_gib: float | None = None
    alloc_retries: int | None = None
    loss_first: float | None = None
    loss_last: float | None = None
    losses: tuple[float, ...] = ()
    effects: Effects = field(default_factory=Effects)
    ceilings: Ceilings | None = None
    whatif: WhatIfOutcome | None = None
    ranks: int = 1
    rank_units_per_s: tuple[float, ...] = ()
    startup_s: float | None = None
    """From the first process's start to the first step."""
    first_step_time: float
    last_step_time: float
    exceptions: tuple[ProgramException, ...] = ()
    oom_seen: bool = False
    guard: str | None = None
    """The user's file that the program was about to write over."""
    writes: tuple[str, ...] = ()
    torch: str | None = None
    python: str | None = None
    probe_errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_records(records_dir: Path, trial: Trial) -> Reading | None:
    """The reading of one trial; None if no process of it came to a measured window."""
    boots = _load(records_dir, "boot-*.json")
    records = _load(records_dir, "[0-9]*.json")
    chosen, notes = _measured_processes(records)
    if not chosen:
        return None
    started = min((float(b["time"]) for b in boots), default=None)
    first_step = min(float(r["first_step_time"]) for r in chosen)
    exceptions = _exceptions(records)
    finished = max(int(r["measured"]["finished_batches"]) for r in chosen)
    if finished < trial.plan.whole_batches:
        wanted = trial.plan.whole_batches
        notes += (f"{finished} batches were finished to the end, {wanted} were asked for",)
    for record in chosen:
        ceilings = record.get("ceilings") or {"notes": ()}
        padding, tokens = (_loader(record).get(k) for k in ("padding_share", "tokens_per_item"))
        if tokens is not None:
            rate = tokens * record["measured"]["units_per_s"]
            notes += (f"{tokens:.1f} tokens a unit, {rate:,.0f} tokens/s without padding",)
        if padding:
            notes += (f"{padding:.0%} of the token positions of a batch were padding",)
        notes += (*record["notes"], *record["measured"]["notes"], *ceilings["notes"])
    notes += _rank_notes(chosen)
    return _merged(
        chosen,
        {
            "exceptions": exceptions,
            "oom_seen": any(_is_oom(e) for e in exceptions)
            or any((r.get("memory") or {}).get("ooms") for r in records),
            "guard": next((r["guard"] for r in records if r.get("guard")), None),
            "writes": tuple(sorted({str(p) for r in records for p in r.get("writes") or ()})),
            "startup_s": first_step - started if started is not None else None,
            "probe_errors": tuple(str(e) for r in records for e in r.get("errors") or ()),
            "notes": tuple(dict.fromkeys(notes)),
        },
    )


def _load(folder: Path, pattern: str) -> list[Record]:
    """Every JSON object that matches; a file cut short by a kill is skipped."""
    found = []
    for path in sorted(folder.glob(pattern)):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(content, dict):
            found.append(content)
    return found


# --- which process was the workload --------------------------------------------------------


def _measured_processes(records: list[Record]) -> tuple[list[Record], tuple[str, ...]]:
    """The process that did the work, or the ranks that shared it."""
    able = [r for r in records if r.get("measured")]
    if not able:
        return [], ()
    best = max(able, key=_weight)
    ranks = [r for r in able if _same_job(r, best)]
    by_rank = {int(r.get("rank") or 0): r for r in ranks}
    chosen = [by_rank[rank] for rank in sorted(by_rank)] if best["world_size"] > 1 else ranks
    others = len(able) - len(chosen)
    if not others:
        return chosen, ()
    many = "1 other process" if others == 1 else f"{others} other processes"
    return chosen, (f"{many} ran steps too, not counted: less of the work, or at another time",)


def _weight(record: Record) -> tuple[bool, float]:
    """Training before inference, then the longer window."""
    measured = record["measured"]
    seconds = measured["window_end"] - measured["window_start"]
    return measured["kind"] == "optimizer step", seconds


def _same_job(record: Record, best: Record) -> bool:
    """Ranks of one job, or processes that one parent ran side by side."""
    if record is best:
        return True
    mine, its = record["measured"], best["measured"]
    if mine["kind"] != its["kind"] or record["world_size"] != best["world_size"]:
        return False
    overlap = min(mine["window_end"], its["window_end"]) - max(
        mine["window_start"], its["window_start"]
    )
    shorter = min(r["window_end"] - r["window_start"] for r in (mine, its))
    together = overlap > shorter / 2
    return together and bool(best["world_size"] > 1 or record["ppid"] == best["ppid"])


def _rank_notes(chosen: list[Record]) -> tuple[str, ...]:
    """Of several ranks: loader workers against CPUs, and the rank that the others wait for.

    Ranks that reduce gradients step together whatever holds them up; the one that never waits in
    its backward is the one that the others wait for.
    """
    if len(chosen) < 2:
        return ()
    notes = []
    workers = [int(_loader(r).get("workers") or 0) for r in chosen]
    if any(workers):
        cpus = chosen[0].get("cpus")
        each = f"{workers[0]} in each" if len(set(workers)) == 1 else ", ".join(map(str, workers))
        notes.append(
            f"{sum(workers)} loader workers, {each} of {len(chosen)} ranks, on {cpus} CPUs"
        )
    shares = [r["measured"].get("backward_share") for r in chosen]
    known = [float(share) for share in shares if share is not None]
    if len(known) == len(chosen) and max(known) - min(known) >= STRAGGLES:
        slow, share = chosen[known.index(min(known))], max(known) - min(known)
        notes.append(
            f"rank {slow['rank']} is the straggler: others wait for it {share:.0%} of the time"
        )
    return tuple(notes)


# --- merging -------------------------------------------------------------------------------


def _merged(chosen: list[Record], common: dict[str, Any]) -> Reading:
    """One reading of one process or of several ranks: rates add up, rank 0 speaks for the rest."""
    first = chosen[0]
    lead = first["measured"]
    rates = tuple(float(r["measured"]["units_per_s"]) for r in chosen)
    seconds = lead["window_end"] - lead["window_start"]
    memories = [r.get("memory") or {} for r in chosen]
    allocated = [m["allocated_gib"] for m in memories if m.get("allocated_gib") is not None]
    reserved = [m["reserved_gib"] for m in memories if m.get("reserved_gib") is not None]
    retries = [m["alloc_retries"] for m in memories if m.get("alloc_retries") is not None]
    host = sum((m.get("rss_gib") or 0.0) + (m.get("workers_rss_gib") or 0.0) for m in memories)
    on_device = bool(allocated) and max(allocated) > 0
    losses = tuple(float(value) for value in first.get("losses") or ())
    waits = [r["measured"]["wait_share"] for r in chosen]
    known_waits = [float(wait) for wait in waits if wait is not None]
    return Reading(
        **common,
        state=first["state"],
        steps=max(int(r["steps"]) for r in chosen),
        torch=first.get("torch"),
        python=first.get("python"),
        first_step_time=min(float(r["first_step_time"]) for r in chosen),
        last_step_time=max(float(r["last_step_time"]) for r in chosen),
        units=sum(rates) * seconds,
        units_per_s=sum(rates),
        rate_source=lead["source"],
        window_start=lead["window_start"],
        window_end=lead["window_end"],
        parts=tuple(_parts(r["measured"]) for r in chosen),
        step_ms=lead["step_ms"],
        step_kind=lead["kind"],
        wait_share=sum(known_waits) / len(known_waits) if known_waits else None,
        shares=Shares(**(lead.get("shares") or {})),
        whole_units=sum(float(r["measured"]["whole_units"]) for r in chosen),
        peak_mem_gib=max(allocated) if on_device else host or None,
        peak_reserved_gib=max(reserved) if on_device else None,
        peak_host_gib=host or None,
        alloc_retries=sum(retries) if on_device else None,
        loss_first=losses[0] if losses else None,
        loss_last=losses[-1] if losses else None,
        losses=losses,
        effects=_effects(first, len(chosen)),
        ceilings=_ceilings(first.get("ceilings")),
        whatif=WhatIfOutcome(**first["whatif"]) if first.get("whatif") else None,
        ranks=len(chosen),
        rank_units_per_s=rates if len(chosen) > 1 else (),
    )


def _parts(measured: Record) -> tuple[Part, ...]:
    return tuple(
        Part(start=float(start), end=float(end), units=float(units), marks=int(marks))
        for start, end, units, marks in measured["parts"]
    )


def _effects(record: Record, ranks: int) -> Effects:
    measured, seen = record["measured"], record.get("seen") or {}
    loader = _loader(record)
    model_dtype, compute_dtype = seen.get("model_dtype"), seen.get("compute_dtype")
    autocast_dtype = seen.get("autocast_dtype")
    if autocast_dtype is None and compute_dtype != model_dtype:
        autocast_dtype = compute_dtype  # entered inside the forward
    return Effects(
        batch=measured["batch"],
        batch_asked=asked if isinstance(asked := loader.get("asked_batch"), int) else None,
        workers=loader.get("workers"),
        left_out=loader.get("left_out"),
        prefetch_factor=loader.get("prefetch"),
        persistent_workers=loader.get("persistent"),
        pin_memory=loader.get("pin"),
        dtype=compute_dtype or autocast_dtype or model_dtype,
        autocast_dtype=autocast_dtype,
        tf32=seen.get("tf32"),
        cudnn_benchmark=seen.get("cudnn_benchmark"),
        compiled=seen.get("compiled"),
        channels_last=seen.get("channels_last"),
        accumulation=record.get("accumulation"),
        world_size=max(ranks, int(record.get("world_size") or 1)),
        forwards_per_unit=measured["forwards_per_unit"],
        input_shapes=tuple(record.get("input_shapes") or ()),
        device=seen.get("device"),
        set_to_none=record.get("set_to_none"),
        loader_site=loader.get("site"),
        model_site=_root(record).get("site"),
        fingerprint=record.get("fingerprint"),
        arguments=tuple((str(k), _scalar(v)) for k, v in (record.get("arguments") or {}).items()),
        defaulted_arguments=tuple(record.get("defaulted") or ()),
    )


def _root(record: Record) -> Record:
    number, roots = record.get("root"), record.get("roots") or []
    return roots[number] if number is not None and number < len(roots) else {}


def _loader(record: Record) -> Record:
    """Facts of the measured DataLoader; empty without one."""
    number = record.get("loader")
    return record["loaders"][number] if number is not None else {}


def _scalar(value: object) -> JsonScalar:
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _ceilings(found: Record | None) -> Ceilings | None:
    if not found:
        return None
    return Ceilings(
        compute_units_per_s=found.get("compute_units_per_s"),
        loader=tuple(
            LoaderCeiling(workers=int(entry["workers"]), units_per_s=float(entry["units_per_s"]))
            for entry in found.get("loader") or ()
        ),
    )


def _exceptions(records: list[Record]) -> tuple[ProgramException, ...]:
    """Those that ended a process first, then those that the program caught."""
    fatal = [
        ProgramException(
            type=str(e["type"]),
            message=str(e["message"]),
            where=str(e["where"]),
            fatal=True,
            tail=str(e.get("tail") or ""),
        )
        for e in (r.get("exception") for r in records)
        if e
    ]
    ends = {(e.type, e.message[:200]) for e in fatal}
    caught = [
        ProgramException(
            type=str(e["type"]), message=str(e["message"]), where=str(e["where"]), fatal=False
        )
        for r in records
        for e in r.get("swallowed") or ()
        if (str(e["type"]), str(e["message"])[:200]) not in ends
    ]
    return tuple(fatal + caught)


def _is_oom(problem: ProgramException) -> bool:
    text = problem.message.lower()
    return problem.type == "OutOfMemoryError" or any(word in text for word in OOM_WORDS)
