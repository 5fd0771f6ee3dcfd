"""General optimisers at what the search does, where Optuna is installed (the dev extra).

They see what every rule sees, the same noisy answers, and may start as many processes as the
largest of the other rules.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SAMPLERS = {
    "Optuna TPE": ("TPESampler", False),
    "Optuna TPE, from the start": ("TPESampler", True),
    "Optuna GP": ("GPSampler", True),
}
"""Name of a rule to its sampler, and whether it is told what the config has."""
NEEDS = {"TPESampler": ("optuna",), "GPSampler": ("optuna", "torch", "scipy")}


def available() -> dict[str, tuple[str, bool]]:
    """Those whose packages are here."""
    return {
        name: (sampler, told)
        for name, (sampler, told) in SAMPLERS.items()
        if all(importlib.util.find_spec(package) for package in NEEDS[sampler])
    }


def best_of(
    sampler: str,
    answer: Callable[[dict[str, int]], float | None],
    grid: Mapping[str, Sequence[int]],
    start: dict[str, int] | None,
    *,
    tries: int,
    seed: int,
) -> dict[str, int]:
    """The best of `tries` points of `grid` by that sampler; what fails is told as rate 0."""
    optuna: Any = importlib.import_module("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        direction="maximize", sampler=getattr(optuna.samplers, sampler)(seed=seed)
    )
    if start is not None:
        study.enqueue_trial({name: grid[name].index(value) for name, value in start.items()})

    def rate(trial: Any) -> float:
        values = {
            name: choices[trial.suggest_int(name, 0, len(choices) - 1)]
            for name, choices in grid.items()
        }
        return answer(values) or 0.0

    study.optimize(rate, n_trials=tries)
    chosen: Mapping[str, int] = study.best_params
    return {name: grid[name][place] for name, place in chosen.items()}
