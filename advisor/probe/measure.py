"""The record's content: the measured window, and the facts around it."""

from __future__ import annotations

from typing import Any, Callable

from . import cards, gradients, observe, stages, steps, window
from .averages import not_above
from .clock import DeviceClock
from .log import Root
from .resting import filled
from .session import Session


def measured(session: Session, ended: bool) -> dict[str, Any]:
    """`measured`: rate, window, waits, shares; null where no step was recognised."""
    log, plan = filled(session.log), session.plan
    ledger = steps.read(log, plan, ended)
    if ledger is None:
        return {"measured": None}
    whole = ended or session.cut_short or plan.get("mode", "window") != "window"
    found, _ = window.find(log, ledger, plan, whole=whole)
    session.ledger, session.window = ledger, found
    clock = read_clock(session)
    if found is not None and clock is not None:
        found.on_device(clock)
    if found is None or found.units_per_s() is None:
        return {"measured": None, "unmeasured": ledger.source}
    rate = found.units_per_s() or 0.0
    took_s = found.batch_seconds()
    return {
        "measured": {
            "kind": ledger.kind,
            "source": ledger.source,
            "unit": None if ledger.unit == "sample" else ledger.unit,
            "units_per_s": rate,
            "window_start": found.start + session.epoch,
            "window_end": found.end + session.epoch,
            "parts": [
                (start + session.epoch, end + session.epoch, units, marks)
                for start, end, units, marks in found.parts(window.multiple_of(log, ledger))
            ],
            "step_ms": 1000.0 * found.seconds / found.count,
            "latency_p50_ms": 1000.0 * not_above(took_s, 0.5) if took_s else None,
            "latency_p95_ms": 1000.0 * not_above(took_s, 0.95) if took_s else None,
            "wait_share": window.wait_share(log, found, clock),
            "backward_share": window.overlap(log.passes, found.start, found.end) / found.seconds,
            "shares": window.shares(log, found, clock),
            "stages": _stages(session, found, clock),
            "whole_units": ledger.whole_units,
            "finished_batches": ledger.finished_batches,
            "batch": ledger.batch,
            "shrunk_from": _shrunk_from(session, found.start, ledger.batch),
            "forwards_per_unit": ledger.forwards_per_unit,
            "notes": found.notes,
        }
    }


def _stages(
    session: Session, found: window.Window, clock: DeviceClock | None
) -> list[dict[str, Any]]:
    """The networks that took turns; none where that cannot be told."""
    try:
        return stages.told(session.log, found, clock)
    except Exception as problem:
        session.fail(problem)
        return []


def _shrunk_from(session: Session, start: float, batch: float | None) -> float | None:
    """Items of the batch for which memory ran out, where the program then took a smaller one, and
    the window lies after that."""
    if session.ran_out is None or batch is None:
        return None
    when, items = session.ran_out
    return items if when < start and batch < items else None


def read_clock(session: Session) -> DeviceClock | None:
    """The device's clock, read; None without one, or where the device no longer answers."""
    try:
        if session.clock is not None:
            session.clock.read()
        return session.clock
    except Exception as problem:
        session.fail(problem)
        return None


def facts(session: Session, ended: bool) -> dict[str, Any]:
    """Everything that does not depend on the window; one fact that fails takes no other along."""
    log = filled(session.log)
    ledger = session.ledger
    root = ledger.root if ledger is not None else steps.dominant_root(log)
    dominant = log.roots[root] if root is not None else None
    loader = ledger.loader if ledger is not None else _only(log.loaders)
    told: dict[str, Any] = {
        "model_site": dominant.site if dominant else None,
        "accumulation": ledger.accumulation if ledger is not None else None,
        "trains": gradients.told(session),
        "tokens_per_item": _tokens(dominant),
        "set_to_none": None if session.set_to_none is None else bool(session.set_to_none),
        "fused": session.fused,
        "recomputes": session.recomputes,
        "skipped_updates": session.skipped_updates,
        "input_shapes": list(dominant.shapes) if dominant else [],
        "input_dims": dominant.dims if dominant else [],
        "seen": dominant.seen if dominant else {},
        "arguments": session.arguments,
        "defaulted": session.defaulted,
    }
    read: dict[str, Callable[[], Any]] = {
        "loader": lambda: _loader(log.loaders[loader]) if loader is not None else {},
        "syncs": lambda: _syncs(session),
        "learning": lambda: session.learning.told(log.opts, log.passes),
        "cpus": observe.cpus,
        "whatif": lambda: session.whatif.told() if session.whatif is not None else None,
        "memory": lambda: observe.memory(session),
        "card": lambda: cards.told(session.torch, log.roots),
        "losses": lambda: observe.loss_values(session),
        "firsts": lambda: observe.firsts(session, root),
        "fingerprint": lambda: observe.fingerprint(session, root, told.get("losses") or []),
    }
    for name, fact in read.items():
        try:
            told[name] = fact()
        except Exception as problem:
            session.fail(problem)
    return told


def _syncs(session: Session) -> list[dict[str, Any]]:
    """Where numbers were given to the host; with what was waited for them, on a device."""
    if session.syncs is None or session.window is None:
        return []
    waited = session.clock is not None
    found: list[dict[str, Any]] = session.syncs.told(session.window, waited)
    return found


def _only(built: list[Any]) -> int | None:
    """Before any step: the loader that the program built, where it is one."""
    return 0 if len(built) == 1 else None


def _tokens(root: Root | None) -> float | None:
    """Token positions of one sample, padding included, where the inputs are tokens."""
    tokens, items = root.tokens if root is not None else (0.0, 0.0)
    return tokens / items if items and root is not None and root.unit == "sample" else None


LOADER_KEYS = (
    "site",
    "pass_items",
    "left_out",
    "workers",
    "prefetch",
    "persistent",
    "pin",
    "passed",
)


def _loader(entry: dict[str, Any]) -> dict[str, Any]:
    found = {key: entry.get(key) for key in LOADER_KEYS}
    batch = entry.get("asked_batch")
    found["asked_batch"] = batch if isinstance(batch, int) else None
    padding = entry["padding"].told() if entry["padding"] is not None else None
    rows, positions, padded, tokens = padding or (0, 0, 0, False)
    found["padding_share"] = padded / positions if positions else None
    found["tokens_per_item"] = (positions - padded) / rows if tokens else None
    return found
