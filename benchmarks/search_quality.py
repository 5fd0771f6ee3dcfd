"""How good are the settings the search ends at, and for how many processes?

    python -m benchmarks.search_quality [--programs 200] [--noise 0.02] [--collapse 0.05]

Each program is a formula (loader, launch cost, compute, memory), so the true optimum over the
whole grid is known. Every rule sees the same noisy answers. Printed: the true rate of what a rule
chose as a share of the optimum, mean and worst tenth, and processes used. Ours is there three
times: what it chose, as the other rules do, which prove nothing, what it wrote once that was
proven, and what it chooses where the memory of a batch is not predicted.

Synthetic: it ranks rules, it does not promise a gain.
"""

import argparse
import itertools
import logging
import random
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from advisor.model import Candidate, Run, Trial, TrialFile
from advisor.tuner import search
from tests.support.simulator.engine import QUIET_MACHINE, Noise, RecordedEngine
from tests.support.simulator.formula import Formula
from tests.support.simulator.search import FormulaSearch, formula_search

AXES = {"batch_size": tuple(2**n for n in range(11)), "num_workers": (0, 1, 2, 4, 7, 8)}
START = {"batch_size": 1, "num_workers": 0}
Values = dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something to be searched whose truth is known."""

    engine: Callable[[], RecordedEngine]
    """A fresh one: the same answers to the same trials."""
    true_rate: Callable[[Values], float | None]
    """Without noise; None out of memory."""
    seed: int
    card_gib: float
    cpus: int
    axes: Mapping[str, Sequence[int]]
    """What may be moved, and to what."""
    start: Values


Rule = Callable[[Problem, Path], tuple[Values, int]]
"""What it would write, and the processes it used."""


def a_program(rng: random.Random, noise: Noise) -> Problem:
    """Between loader bound, launch bound and compute bound, on a card that fills."""
    formula = Formula(
        load_s=10 ** rng.uniform(-5, -2),
        launch_s=10 ** rng.uniform(-3.5, -1.5),
        unit_s=10 ** rng.uniform(-4.5, -2),
        unit_gib=10 ** rng.uniform(-2, 0),
        card_gib=rng.choice([8.0, 24.0, 80.0]),
        process_s=1.0,
    )
    seed = rng.randrange(2**30)

    def true_rate(values: Values) -> float | None:
        needed_gib = formula.base_gib + formula.unit_gib * values["batch_size"]
        return formula.rate(values) if needed_gib <= formula.card_gib else None

    return Problem(
        engine=lambda: RecordedEngine(formula, noise=noise, seed=seed),
        true_rate=true_rate,
        seed=seed,
        card_gib=formula.card_gib,
        cpus=QUIET_MACHINE.cpus,
        axes=AXES,
        start=START,
    )


def text(values: Values) -> str:
    return "".join(f"{name}: {value}\n" for name, value in values.items())


def answer(engine: RecordedEngine, values: Values) -> float | None:
    """One measured rate, or None out of memory."""
    trial = Trial(
        id="x",
        purpose="search",
        label="",
        candidate=Candidate(),
        command=("x",),
        cwd=".",
        scratch=".",
        files=(TrialFile(original="c.yaml", content=text(values).encode()),),
    )
    result = engine.run(trial)
    return result.units_per_s if isinstance(result, Run) else None


def searched(program: Problem, folder: Path) -> FormulaSearch:
    """A whole search as `optimize` makes it, with the card's memory as the limit."""
    return formula_search(
        folder,
        program.engine(),
        text(program.start),
        workload={"phase": "test"},
        memory_gib=program.card_gib,
        cpus=program.cpus,
        precisions=("float32",),
    )


def written(program: Problem, folder: Path) -> tuple[Values, int]:
    """What `optimize` would write: what it chose, where the proof held."""
    search = searched(program, folder)
    return program.start | plain(search.winner), before_proof(search)


def put_to_proof(program: Problem, folder: Path) -> tuple[Values, int]:
    """What `optimize` chose: as the other rules do, which prove nothing."""
    search = searched(program, folder)
    asked = (a.request for a in search.executor.attempts if a.request.purpose == "confirm")
    chosen = next(
        (each.variant.candidate for each in asked if each.variant.candidate.changes), None
    )
    return program.start | (plain(chosen) if chosen else {}), before_proof(search)


def plain(candidate: Candidate) -> Values:
    """What it changes."""
    return {change.path: int(str(change.new)) for change in candidate.changes}


def without_prediction(program: Problem, folder: Path) -> tuple[Values, int]:
    """The same without the expected memory of a batch: what does not fit is tried."""
    with mock.patch.object(search, "expected_gib", return_value=0.0):
        return put_to_proof(program, folder)


def before_proof(search: FormulaSearch) -> int:
    """Processes of the baseline and the search."""
    attempts = search.executor.attempts
    return sum(attempt.request.purpose in {"baseline", "search"} for attempt in attempts)


def largest_that_fits(program: Problem, folder: Path) -> tuple[Values, int]:
    """What batch finders do: double until out of memory, step back; workers untouched."""
    del folder
    engine, values, used = program.engine(), dict(program.start), 0
    for batch in program.axes.get("batch_size", ()):
        used += 1
        if answer(engine, values | {"batch_size": batch}) is None:
            break
        values["batch_size"] = batch
    return values, used


def one_at_a_time(program: Problem, folder: Path) -> tuple[Values, int]:
    """Naive coordinate descent: the best batch at the given workers, then the best workers."""
    del folder
    engine, values, used = program.engine(), dict(program.start), 0
    for name, choices in program.axes.items():
        rates = {}
        for choice in choices:
            used += 1
            rate = answer(engine, values | {name: choice})
            if rate is None:
                break
            rates[choice] = rate
        values[name] = max(rates, key=lambda choice: rates[choice])
    return values, used


RULES: dict[str, Rule] = {
    "gpu-advisor, chosen": put_to_proof,
    "gpu-advisor, written": written,
    "memory not predicted": without_prediction,
    "largest batch that fits": largest_that_fits,
    "one knob at a time": one_at_a_time,
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--noise", type=float, default=0.02)
    parser.add_argument("--collapse", type=float, default=0.0)
    args = parser.parse_args()
    noise = Noise(between=args.noise, collapse=args.collapse)
    logging.disable()
    rng = random.Random(1)
    shares: dict[str, list[float]] = {name: [] for name in RULES}
    used: dict[str, list[int]] = {name: [] for name in RULES}
    for _ in range(args.programs):
        program = a_program(rng, noise)
        grid = (dict(zip(AXES, at, strict=True)) for at in itertools.product(*AXES.values()))
        rates = map(program.true_rate, grid)
        best = max(rate for rate in rates if rate is not None)
        for name, rule in RULES.items():
            with tempfile.TemporaryDirectory() as folder:
                values, processes = rule(program, Path(folder))
            shares[name].append((program.true_rate(values) or 0.0) / best)
            used[name].append(processes)
    print(
        f"{args.programs} programs, noise {args.noise:.0%} a process, "
        f"{args.collapse:.0%} collapsed, started at {START}"
    )
    print(f"{'rule':26} {'share of optimum':>17} {'worst tenth':>12} {'processes':>10}")
    for name in RULES:
        tenth = sorted(shares[name])[: max(1, args.programs // 10)]
        print(
            f"{name:26} {statistics.fmean(shares[name]):17.1%} {statistics.fmean(tenth):12.1%} "
            f"{statistics.fmean(used[name]):10.1f}"
        )


if __name__ == "__main__":
    main()
