"""Calls of `optimize` on simulated hosts, judged by the real `Comparison`.

A call is played as `optimize` makes it: two or three baselines, a search that takes the best of
five runs, a comparison in rounds of changing order, and a second one if the first leaves the
gain open. The processes are simulated, so the truth is known. Only calls count in which the
search found something to compare.

A world is a host, which slows the processes of both arms as they come, and a noise of each arm's
own, which one of them has two or three times.
"""

import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from advisor.executor.comparison import Comparison
from advisor.executor.requests import AFTER, BEFORE, ABTest, TrialRequest, TrialResult, Variant
from advisor.executor.rounds import Round
from advisor.model import MeasurePlan, Run
from advisor.objective import THROUGHPUT
from advisor.stats import noise_band

ROUNDS = (2, 3, 4, 6, 12)
SMALLEST_GAIN = 0.03
CANDIDATES = 5
"""Runs of which a search takes the best: what it hopes for is flattered."""
WINDOWS, WINDOW_NOISE = 8, 0.02
"""Windows of a process, and how they scatter: the floor under what baselines tell."""

Host = Callable[[random.Random], Iterator[float]]
"""Log rates of one process after the other, without their own noise."""


def steady(_: random.Random) -> Iterator[float]:
    return itertools.repeat(0.0)


def drifting(rng: random.Random) -> Iterator[float]:
    """1.2 % faster, or slower, with every process."""
    step = rng.choice((-0.012, 0.012))
    return (step * place for place in itertools.count())


def stepping(rng: random.Random) -> Iterator[float]:
    """One change by 25 %, somewhere in the baselines, the search or the rounds."""
    place, by = rng.randrange(1, 17), rng.choice((-0.25, 0.25))
    return (by * (at >= place) for at in itertools.count())


def cold(first: int) -> Host:
    """The call's first processes are slow."""

    def host(_: random.Random) -> Iterator[float]:
        return itertools.chain(itertools.repeat(-0.30, first), itertools.repeat(0.0))

    return host


def modes(share: float, by: float) -> Host:
    """A share of processes lands in a slower mode."""

    def host(rng: random.Random) -> Iterator[float]:
        while True:
            yield -by * (rng.random() < share)

    return host


def lasting_modes(rng: random.Random) -> Iterator[float]:
    """Two speeds, 0.3 apart, that last for eight processes in the mean."""
    slow = rng.random() < 0.5
    while True:
        yield -0.3 * slow
        slow ^= rng.random() < 0.12


def wandering(correlation: float) -> Host:
    """Slow changes by 8 %: each process is much as the one before."""

    def host(rng: random.Random) -> Iterator[float]:
        at = rng.gauss(0, 0.08)
        while True:
            yield at
            at = correlation * at + math.sqrt(1 - correlation**2) * rng.gauss(0, 0.08)

    return host


def alternating(rng: random.Random) -> Iterator[float]:
    """Every second process is faster by 15 %."""
    return itertools.cycle(rng.choice(((0.0, 0.15), (0.15, 0.0))))


def stalling(rng: random.Random) -> Iterator[float]:
    """Delays without a typical size, of 3 % in the median and up to 60 %."""
    while True:
        yield -abs(rng.gauss(0, 0.03)) / max(0.05, abs(rng.gauss(0, 1)))


def boosting(rng: random.Random) -> Iterator[float]:
    """One process in seven is faster by 8 %."""
    while True:
        yield 0.08 * (rng.random() < 0.15)


def normal(rng: random.Random) -> float:
    return rng.gauss(0, 1)


def heavy_tailed(rng: random.Random) -> float:
    """Student's t with two degrees of freedom, which has no variance."""
    return rng.gauss(0, 1) / math.sqrt(rng.expovariate(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    name: str
    host: Host = steady
    noise: Callable[[random.Random], float] = normal
    sigma: float = 0.02
    """Deviation of a process of either arm, before one has it more than once."""


WORLDS = (
    World(name="quiet"),
    World(name="noisy", sigma=0.05),
    World(name="very noisy", sigma=0.10),
    World(name="heavy tails", noise=heavy_tailed, sigma=0.03),
    World(name="stalls", host=stalling),
    World(name="boosts", host=boosting, sigma=0.01),
    World(name="slow baselines", host=cold(3)),
    World(name="slow baselines, very noisy", host=cold(3), sigma=0.08),
    World(name="slow until the second round", host=cold(10), sigma=0.03),
    World(name="drift", host=drifting),
    World(name="one step", host=stepping),
    World(name="30 % slow by 1.54x", host=modes(0.3, 0.43)),
    World(name="50 % slow by 1.35x", host=modes(0.5, 0.30)),
    World(name="70 % slow by 1.54x", host=modes(0.7, 0.43)),
    World(name="lasting modes", host=lasting_modes),
    World(name="autocorrelated 0.5", host=wandering(0.5)),
    World(name="autocorrelated 0.9", host=wandering(0.9)),
    World(name="period two", host=alternating, sigma=0.01),
)

UNEQUAL = {
    "equal": (1.0, 1.0),
    "candidate 2x": (1.0, 2.0),
    "candidate 3x": (1.0, 3.0),
    "original 2x": (2.0, 1.0),
    "original 3x": (3.0, 1.0),
}
"""How often the original and the candidate have the world's own noise."""

REQUEST = TrialRequest(variant=Variant(), purpose="confirm", plan=MeasurePlan())


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A call that compared a candidate."""

    low: float
    high: float
    proven: bool


def a_run(log_rate: float) -> Run:
    rate = math.exp(log_rate)
    return Run(
        unit="sample",
        units=3 * rate,
        units_per_s=rate,
        rate_source="loader batches",
        window_start=0.0,
        window_end=3.0,
    )


def windows(run: Run, rng: random.Random) -> tuple[float, ...]:
    return tuple(run.units_per_s * math.exp(rng.gauss(0, WINDOW_NOISE)) for _ in range(WINDOWS))


def play(
    world: World, factors: tuple[float, float], gain: float, rounds: int, rng: random.Random
) -> Outcome | None:
    """One call with its comparisons; None where the search saw nothing faster."""
    host = world.host(rng)

    def run(arm: int) -> Run:
        own = world.sigma * factors[arm] * world.noise(rng)
        return a_run(next(host) + own + (math.log(gain) if arm else 0.0))

    baselines = [run(0), run(0)]
    rates = [each.units_per_s for each in baselines]
    if max(rates) / min(rates) > 1 + SMALLEST_GAIN:
        baselines.append(run(0))
    hoped = max(run(1).units_per_s for _ in range(CANDIDATES))
    if hoped <= (1 + SMALLEST_GAIN) * statistics.median(each.units_per_s for each in baselines):
        return None
    band = noise_band([windows(each, rng) for each in baselines]) or 0.0
    found = None
    for _ in ("first", "again"):
        compared = comparison([order(run, n) for n in range(rounds)], baselines, band)
        interval = compared.interval(THROUGHPUT)
        if interval is None:
            return None
        proven = compared.proven(THROUGHPUT, SMALLEST_GAIN)
        found = Outcome(low=interval.low, high=interval.high, proven=proven)
        if proven or interval.estimate <= 1 + SMALLEST_GAIN:
            break
    return found


def order(run: Callable[[int], Run], number: int) -> tuple[Run, Run]:
    """Runs of the original and the candidate in a round; every second one begins with it."""
    if number % 2 == 0:
        return run(0), run(1)
    after = run(1)
    return run(0), after


def comparison(
    rounds: Sequence[tuple[Run, Run]], baselines: Sequence[Run], band: float
) -> Comparison:
    ab_test = ABTest(
        purpose="confirm",
        requests=(REQUEST, REQUEST),
        rounds=len(rounds),
        sigma=band / 2 * math.sqrt(2),
    )
    made = []
    for number, runs in enumerate(rounds, 1):
        results = {
            arm: TrialResult(id="1", request=REQUEST, result=run, remaining_s=1.0)
            for arm, run in zip((BEFORE, AFTER), runs, strict=True)
        }
        made.append(Round(number=number, runs=results))
    return Comparison(
        ab_test=ab_test, rounds=tuple(made), outside=tuple(baselines), remaining_s=1.0
    )


def played(world: World, unequal: str, gain: float, rounds: int, calls: int) -> list[Outcome]:
    """Calls of one cell that compared a candidate."""
    rng = random.Random(f"{world.name}/{unequal}/{gain}/{rounds}")
    found = (play(world, UNEQUAL[unequal], gain, rounds, rng) for _ in range(calls))
    return [each for each in found if each is not None]


def share(hits: int, of: int) -> float:
    """Percent."""
    return 100 * hits / max(1, of)


def errors(outcomes: Sequence[Outcome], gain: float) -> tuple[float, float, float]:
    """Percent of lower bounds above the truth, of upper ones below it, and of proofs."""
    return (
        share(sum(each.low > gain for each in outcomes), len(outcomes)),
        share(sum(each.high < gain for each in outcomes), len(outcomes)),
        share(sum(each.proven for each in outcomes), len(outcomes)),
    )
