"""Do values that stand in the code gain as values in a config do?

    python -m benchmarks.values_in_code [--seeds 2] [--noise 0.02] [--budget 600]

Three programs that are formulas: bound by all of loading, launches and compute, by launches, or by
loading. Each has its batch and workers in a config, in the code, or one in each, and tests or
trains (without accumulation, so that its batch is only suggested). Printed: the true gain of what
was written with what was suggested on top, and the processes used.

Synthetic: it compares places of a value, it does not promise a gain.
"""

import argparse
import logging
import tempfile
from pathlib import Path
from typing import Any

from tests.support.simulator.formula import Formula
from tests.support.simulator.search import formula_search, on_formula

FORMULAS = {
    "all three": Formula(load_s=0.004, launch_s=0.004, unit_s=0.0005),
    "launches": Formula(load_s=0.001, launch_s=0.02, unit_s=0.0003),
    "loading": Formula(load_s=0.01, launch_s=0.002, unit_s=0.0002),
}
START = {"batch_size": 1, "num_workers": 0}
PLACES = {
    "in the config": ("batch_size: 1\nnum_workers: 0\n", ()),
    "batch in the config, workers in the code": ("batch_size: 1\n", ("num_workers",)),
    "in the code": ("lr: 0.1\n", ("batch_size", "num_workers")),
}
PROCESS_S = 5.0
"""What a process takes."""


def gain(
    formula: Formula, place: str, phase: str, seed: int, noise: float, budget_s: float
) -> tuple[float, int]:
    """True gain of all that is written and suggested, and the processes used."""
    text, coded = PLACES[place]
    settings: dict[str, Any] = {
        name: getattr(formula, name) for name in ("load_s", "launch_s", "unit_s")
    }
    engine = on_formula(
        **settings,
        noise=noise,
        seed=seed,
        process_s=PROCESS_S,
        coded={name: START[name] for name in coded},
        observed={"loader_site": "train.py:1"},
        step_kind="optimizer step" if phase == "train" else None,
    )
    with tempfile.TemporaryDirectory() as folder:
        search = formula_search(
            Path(folder), engine, text, workload={"phase": phase}, budget_s=budget_s
        )
    proven = [
        suggestion.variant.candidate
        for suggestion in search.state.suggestions
        if suggestion.outcome and suggestion.outcome.proven(search.context.objective, 0.03)
    ]
    values = {change.path: change.new for change in (*proven, search.winner)[0].changes}
    return formula.rate(START | values) / formula.rate(START), len(engine.asked)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--noise", type=float, default=0.02)
    parser.add_argument("--budget", type=float, default=600.0)
    args = parser.parse_args()
    logging.disable()
    print(f"noise {args.noise:.0%}, {args.budget:g} s, {args.seeds} seeds: gain (processes)")
    for name, formula in FORMULAS.items():
        for phase in ("test", "train"):
            for place in PLACES:
                found = [
                    gain(formula, place, phase, seed, args.noise, args.budget)
                    for seed in range(1, args.seeds + 1)
                ]
                shown = ", ".join(f"{times:.2f}x ({used})" for times, used in found)
                print(f"{name:10} {phase:6} {place:41} {shown}", flush=True)


if __name__ == "__main__":
    main()
