"""How much each knob matters around what was chosen: one step to either side, as it was measured.

Nothing is run for it and nothing is fitted: a neighbour that did not run is not in the table.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.config.spelling import is_number
from advisor.report.curves import PROVING, SEARCHED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from advisor.report.model import ChangeEntry, DecisionEntry, Report, TrialEntry, Value

FOLLOWERS = {"batch_size": {"grad_accum"}, "timesteps": {"schedule"}}
"""Kinds that move with another one, so that the pair is one step of one knob."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """One knob a step away from what was chosen, all others equal."""

    path: str
    chosen: Value
    value: Value
    units_per_s: float | None
    """Mean of its processes; None where it failed."""
    ratio: float | None
    """Over the mean of the chosen value's processes."""
    runs: int
    chosen_runs: int
    peak_mem_gib: float | None
    outcome: str
    """`ok`, or the failure's kind."""
    others: tuple[tuple[str, Value], ...] = ()
    """Values of other knobs that were not yet those chosen when both were measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """Everything that ran, by values."""

    trials: tuple[TrialEntry, ...]
    kinds: Mapping[str, str]
    base: Mapping[str, Value]
    chosen: Mapping[str, Value]
    moved: frozenset[str]
    """Paths that some trial had at another value than the original."""

    def follows(self, path: str) -> bool:
        """Whether it only ever moves with another knob."""
        return any(self.kinds[path] in followers for followers in FOLLOWERS.values())

    def led_by(self, path: str) -> set[str]:
        """The knob itself, and what moves with it."""
        followers = FOLLOWERS.get(self.kinds[path], set())
        return {path, *(each for each in self.moved if self.kinds[each] in followers)}


def neighbours(report: Report) -> list[Neighbour]:
    """Of every knob that was moved: what was measured next to the chosen value.

    Where a knob was moved before others were, both values count as they were measured then.
    """
    known: list[DecisionEntry | ChangeEntry] = [*report.decisions, *report.changes]
    trials = [t for t in report.trials if t.purpose in SEARCHED and t.settings is not None]
    chosen = {entry.path: entry.from_ for entry in known}
    chosen |= {change.path: change.to for change in report.changes}
    tried = _Tried(
        trials=tuple(trials),
        kinds={entry.path: entry.kind for entry in known},
        base={entry.path: entry.from_ for entry in known},
        chosen=chosen,
        moved=frozenset(path for t in trials for path in t.settings or {} if path in chosen),
    )
    ignored = {entry.path for entry in report.decisions if entry.outcome == "ignored"}
    paths = [path for path in sorted(tried.moved - ignored) if not tried.follows(path)]
    return [near for path in paths for near in _around(path, tried)]


def _around(path: str, tried: _Tried) -> list[Neighbour]:
    """Neighbours of one knob, where the others were nearest to what was chosen for them."""
    rest = sorted(tried.moved - tried.led_by(path))
    grounds: dict[str, dict[str, list[TrialEntry]]] = defaultdict(lambda: defaultdict(list))
    for trial in tried.trials:
        settings = {**tried.base, **(trial.settings or {})}
        ground = json.dumps([settings[each] for each in rest])
        grounds[ground][json.dumps(settings[path])].append(trial)
    chosen = tried.chosen[path]
    here = json.dumps(chosen)

    def apart(ground: str) -> list[tuple[str, Value]]:
        pairs = zip(rest, json.loads(ground), strict=True)
        return [(name, value) for name, value in pairs if value != tried.chosen[name]]

    usable = [
        ground
        for ground, values in grounds.items()
        if len(values) > 1 and any(trial.units_per_s for trial in values.get(here, ()))
    ]
    if not usable:
        return []
    ground = min(usable, key=lambda each: (len(apart(each)), -len(grounds[each])))
    values = {json.loads(key): runs for key, runs in grounds[ground].items() if key[0] not in "[{"}
    own = _rates(grounds[ground][here])
    found = []
    for value in _next_to(chosen, values):
        runs, rates = values[value], _rates(values[value])
        mean = statistics.fmean(rates) if rates else None
        found.append(
            Neighbour(
                path=path,
                chosen=chosen,
                value=value,
                units_per_s=mean,
                ratio=None if mean is None else mean / statistics.fmean(own),
                runs=len(rates or runs),
                chosen_runs=len(own),
                peak_mem_gib=max((t.peak_mem_gib for t in runs if t.peak_mem_gib), default=None),
                outcome="ok" if rates else runs[0].outcome,
                others=tuple(pair for pair in apart(ground) if not tried.follows(pair[0])),
            )
        )
    return found


def _next_to(chosen: Value, values: Iterable[Value]) -> list[Value]:
    """One step down and one up of a number; of anything else, every other value."""
    others = [value for value in values if value != chosen]
    if not is_number(chosen) or not all(map(is_number, others)):
        return others
    below = [value for value in others if value < chosen]  # type: ignore[operator]
    above = [value for value in others if value > chosen]  # type: ignore[operator]
    return [*([max(below)] if below else []), *([min(above)] if above else [])]  # type: ignore[type-var]


def _rates(trials: Iterable[TrialEntry]) -> list[float]:
    """Of the search alone, and of those that nobody disturbed, where there are some: what ran at
    about the same time, and as its neighbours did."""
    found = [trial for trial in trials if trial.units_per_s and not trial.repeated]
    found = [trial for trial in found if trial.purpose not in PROVING] or found
    found = [trial for trial in found if not trial.disturbed] or found
    return [trial.units_per_s for trial in found if trial.units_per_s]
