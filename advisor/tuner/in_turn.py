"""Switches in turn: where a start costs much, one process tells which deserve any of their own.

A process puts each switch on for a spell and takes it off again. That chooses; what is told to
anybody comes from pairs of fresh processes, as everywhere.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING

from advisor.executor.requests import TrialRequest, Variant
from advisor.probe.in_turn import LASTING, order
from advisor.tuner.asking import SearchStep, tried
from advisor.tuner.standing import MIN_STEPS, Result, TunerState

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from advisor.model import InTurn, Spell
    from advisor.tuner.switches import Switch

CHEAPER = 0.75
"""Turns are taken where they cost no more than this part of a process for each switch."""
SETTLING = 3
"""Steps that a spell discards beside what its loader holds ready."""
RATES = {"throughput", "cost"}
"""Objectives that follow from the rate alone."""
STEADY = 0.15
"""A program that drifts further, beyond what a steady drift explains, tells nothing in turn."""

Gains = Mapping[str, float | None]
"""By what-if: how many times faster it was; None: it did not apply, or the difference was less than
counts. What is missing was not told."""


def in_turn(
    now: TunerState, wanted: Iterable[tuple[Switch, tuple[str, ...]]]
) -> Generator[SearchStep, Result, tuple[TunerState, Gains]]:
    """What one process says of the what-ifs of `wanted`; nothing where turns are not worth it."""
    names = _that_can(now, wanted)
    visits_s = len(order(names)) * _spell_s(now)
    together_s, apart_s = now.price_s + visits_s, len(names) * now.price_s
    if together_s > CHEAPER * apart_s or together_s > now.remaining_s:
        return now, {}
    request = TrialRequest(
        variant=Variant(candidate=now.best),
        purpose="whatif",
        plan=now.plan(now.best, in_turn=names),
        expected_s=together_s,
    )
    now, attempt = yield from tried(now, request, kept_s=0.0, matters=False)
    run = attempt.run if attempt else None
    return now, {} if run is None else gains(run.in_turn, now.facts.smallest_gain)


def _that_can(now: TunerState, wanted: Iterable[tuple[Switch, tuple[str, ...]]]) -> tuple[str, ...]:
    """Those that can be put on and taken off while this program runs.

    Ranks would have to change at one step. Compiled code is compiled anew for most of them. What a
    training made of weights in one layout (gradients, momenta) keeps it, so there a layout is only
    as fast as it is from the first step on. Where lines of output are counted, nobody counts steps.
    """
    seen, facts = now.front.effects, now.facts
    several = max(now.front.ranks, seen.world_size or 1) > 1
    counted = facts.objective.name in RATES and facts.workload.unit_regex is None
    if several or seen.compiled or not counted:
        return ()
    each = [name for switch, names in wanted if switch.in_turn for name in names]
    lasting = [name for name in each if name in LASTING and not now.trains][:1]
    return tuple(name for name in each if name not in LASTING or name in lasting)


def _spell_s(now: TunerState) -> float:
    """What one spell takes, with what it discards."""
    run = now.front
    step_s = (run.step_ms or 0.0) / 1000.0
    ready = (run.effects.workers or 0) * (run.effects.prefetch_factor or 2)
    return max(now.facts.measure_s, MIN_STEPS * step_s) + (SETTLING + ready) * step_s


def gains(found: tuple[InTurn, ...], smallest_gain: float) -> Gains:
    """How many times faster each switch was than the program beside it; see `Gains`."""
    accounts = {each.name: each for each in found}
    own = _undisturbed(accounts.pop("", None))
    if not own:
        return {}
    tie = max(smallest_gain, _wander(own))
    if tie > STEADY:
        return {}
    told: dict[str, float | None] = {}
    for name, account in accounts.items():
        spells = _undisturbed(account)
        if not account.applied:
            told[name] = None
        elif spells:
            gain = statistics.geometric_mean(s.units_per_s / _beside(own, s) for s in spells)
            told[name] = gain if gain > 1 + tie else None
    return told


def _undisturbed(account: InTurn | None) -> list[Spell]:
    spells = account.spells if account is not None else ()
    return [spell for spell in spells if not spell.disturbed and spell.units_per_s > 0]


def _beside(own: list[Spell], spell: Spell) -> float:
    """The rate of the program as it is at the time of `spell`: between the ones before and after it
    by a straight line."""
    before = [each for each in own if each.end <= spell.start][-1:]
    after = [each for each in own if each.start >= spell.end][:1]
    if not before or not after:
        return (before or after or own)[0].units_per_s
    return _between(before[0], after[0], spell)


def _between(before: Spell, after: Spell, spell: Spell) -> float:
    start, end = _middle(before), _middle(after)
    share = (_middle(spell) - start) / (end - start)
    return before.units_per_s + share * (after.units_per_s - before.units_per_s)


def _middle(spell: Spell) -> float:
    return (spell.start + spell.end) / 2


def _wander(own: list[Spell]) -> float:
    """How far the program as it is lay from a steady drift; 0 where too few spells tell."""
    inner = own[1:-1]
    return max(
        (abs(each.units_per_s / _between(own[0], own[-1], each) - 1) for each in inner),
        default=0.0,
    )
