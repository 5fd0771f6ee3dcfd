"""Loader settings that a fit cannot foresee: prefetch, pinning, persistence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor import knobs
from advisor.tuner import effects, results
from advisor.tuner.asking import Stage, ask_for, tried
from advisor.tuner.standing import TunerState, change_of, key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.model import Candidate, JsonScalar, Knob, Run

MOST_COUNTS = 4


def tune_loader(now: TunerState) -> Stage:
    """Prefetch, pinning and persistence, each on top of what gained so far."""
    for knob in now.tunable("prefetch_factor"):
        if now.front.effects.workers:
            known = {now.current(knob), now.front.effects.prefetch_factor}
            values = [v for v in (2, 4, 8) if v not in known]
            now = yield from try_values(now, knob, values[: max(1, now.tries // 2)])
    for knob in now.tunable("pin_memory") if now.facts.has_gpu else []:
        now = yield from try_values(now, knob, [not now.current(knob)])
    for knob in now.tunable("persistent_workers"):
        if now.front.effects.workers:
            now = yield from try_values(now, knob, [not now.current(knob)])
    return now


def worker_counts(now: TunerState, current: object) -> list[int]:
    """Counts worth a process, best loader first."""
    rates = now.loader_alone
    ordered = sorted(counts(now, current), key=lambda v: (-rates.get(v, 0.0), v))
    return ordered[: max(1, min(MOST_COUNTS, now.tries // 2))]


def counts(now: TunerState, current: object) -> set[int]:
    """Other counts that may be as fast as the best, inside the CPUs that this host gives."""
    cpus = now.facts.cpus
    values = {0, 1, 2, cpus // 2, cpus - 1, cpus} | ({4, 8, 16} if cpus >= 8 else set())
    values = {v for v in values if 0 <= v <= cpus and v != current}
    rates = now.loader_alone
    if now.facts.has_gpu:
        # With the compute on the GPU, a loader slower than the whole cannot make it faster.
        values = {v for v in values if rates.get(v, 1e30) > now.front.units_per_s}
    return values


def try_values(now: TunerState, knob: Knob, values: Sequence[JsonScalar]) -> Stage:
    """Each value on top of the best; of those that tie with the fastest one is taken by size."""
    start = now.front
    ran: list[tuple[JsonScalar, Candidate, Run]] = []
    fits = True
    for value in values:
        candidate = now.with_value(knob, value)
        if isinstance(candidate, knobs.InvalidChange):
            now = now.settle(key_of(knob), "refused", "refused", why=candidate.reason)
            continue
        now, attempt = yield from tried(now, ask_for(now, candidate, knob=knob))
        fits = attempt is not None
        if attempt is None:
            break
        run = attempt.run
        if run is None:
            continue
        if unfollowed(knob, candidate, start, run):
            return settle_ignored(now, knob, candidate, run)
        if not results.lost(now.originals, run):
            ran.append((value, candidate, run))
    word = now.word_on(knob)
    if not ran:
        return now if fits or word is not None else now.settle(key_of(knob), "skipped", "budget")
    top = now.facts.objective.score(now.facts.objective.best([run for _, _, run in ran]))
    level = [
        each
        for each in ran
        if now.facts.objective.gain(now.facts.objective.score(each[2]), top) <= 1 + now.level
        and now.faster(each[2], start)
    ]
    if not level:
        if word is not None and word.outcome == "found":
            return now  # an earlier pass found a value, and nothing is better than that
        return now.settle(key_of(knob), "kept", "tie", band=now.band)
    _, candidate, run = min(level, key=lambda each: _size(each[0]))
    now = now.adopt(candidate, run)
    if change_of(candidate, key_of(knob)) is None:  # back to what the config says
        return now.settle(key_of(knob), "kept", "tie", band=now.band)
    return now.settle(key_of(knob), "found", "loader")


def _size(value: JsonScalar) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def unfollowed(knob: Knob, candidate: Candidate, before: Run, after: Run) -> bool:
    """Whether the program ran on as before although `candidate` changes `knob`."""
    change = change_of(candidate, key_of(knob))
    return change is not None and effects.verdict(change, before, after) == "ignored"


def settle_ignored(now: TunerState, knob: Knob, candidate: Candidate, run: Run) -> TunerState:
    """The program did not follow the knob in `candidate`; with what it did instead. One of another
    phase than ran may be followed there, of which nothing was seen."""
    key = key_of(knob)
    if not now.in_phase(knob):
        return now.settle(key, "kept", "other-phase", phase=knob.phase, runs=now.phase)
    used, site = effects.used_instead(knob, run)
    change = change_of(candidate, key)
    asked = knob.value if change is None else change.new
    override = effects.overriding(knob.path, asked, run)
    return now.settle(key, "ignored", "ignored", used=used, site=site, override=override)


def settle_loader(now: TunerState) -> TunerState:
    """Say why the loader knobs that no stage touched stay."""
    for knob in now.of_kind("num_workers", "prefetch_factor", "pin_memory", "persistent_workers"):
        if now.word_on(knob) is not None:
            continue
        if not knob.editable:
            now = now.settle(key_of(knob), "refused", "not-editable", why=knob.why)
        elif knob.kind == "pin_memory" and not now.facts.has_gpu:
            now = now.settle(key_of(knob), "kept", "no-gpu-to-pin-for")
        elif now.waits:
            now = now.settle(key_of(knob), "kept", "no-gain-tried")
        else:
            now = now.settle(key_of(knob), "kept", "does-not-wait")
    return now
