"""A whole search over a program that is a formula: its facts, an executor, and the loop."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor import config as documents, knobs
from advisor.executor.executor import Budget, Executor
from advisor.executor.requests import Program, TrialResult
from advisor.executor.run_cache import RunCache
from advisor.history import History
from advisor.model import Candidate, Decision, Failure, Run, Trial
from advisor.objective import THROUGHPUT, Objective
from advisor.settings import Workload
from advisor.tuner.confirm import proven_candidate
from advisor.tuner.context import Source, TuningContext
from advisor.tuner.decisions import decisions
from advisor.tuner.pipeline import pipeline
from advisor.tuner.stages import Stop
from advisor.tuner.state import Result, TunerState
from tests.support.simulator.engine import QUIET_MACHINE, Noise, RecordedEngine
from tests.support.simulator.formula import Formula


class Quiet:
    """A listener that says nothing."""

    def trial_started(self, number: int, label: str) -> None: ...

    def round_done(self, counted: int, planned: int, label: str, gain: object) -> None: ...

    def compared(self, done: object) -> None: ...

    def trial_done(self, attempt: TrialResult) -> None: ...

    def note(self, text: str) -> None: ...


class Forgetful(History):
    """A history that lasts as long as the search: no disk is waited for."""

    def __init__(self) -> None:
        self._kept: dict[str, list[tuple[float, Run | Failure]]] = {}

    def append(self, key: str, machine: str, result: Run | Failure) -> None:
        """Keep `result`; there is one machine."""
        del machine
        self._kept.setdefault(key, []).insert(0, (time.time(), result))

    def find(
        self, key: str, machine: str, *, max_age_s: float, min_age_s: float = 0.0
    ) -> list[Run | Failure]:
        """Results of `key`, newest first."""
        del machine
        now = time.time()
        kept = self._kept.get(key, [])
        return [each for at, each in kept if now - max_age_s < at <= now - min_age_s]


def on_formula(
    kind: type[RecordedEngine] = RecordedEngine,
    *,
    noise: float = 0.0,
    seed: int = 0,
    process_s: float | Callable[[Trial], float] = 1.0,
    startup_s: float | None = None,
    held: Callable[[int, Mapping[str, Any]], float | None] | None = None,
    slowed: float = 1.0,
    **formula: Any,
) -> RecordedEngine:
    """An engine on a formula whose processes take `process_s` each after `startup_s`.

    `held` tells how many CPUs others hold beside a process, each of which makes it `slowed` longer.
    """
    return kind(
        Formula(process_s=process_s, **formula),
        noise=Noise(between=noise),
        seed=seed,
        startup_s=startup_s,
        held=held,
        slowed=slowed,
    )


def taking(usual_s: float, **of: float) -> Callable[[Trial], float]:
    """What a process takes: `usual_s`, but for purposes that are named."""
    return lambda trial: of.get(trial.purpose, usual_s)


@dataclass(frozen=True, kw_only=True)
class FormulaSearch:
    """One search that ended, and what can be asked of it."""

    engine: RecordedEngine
    context: TuningContext
    executor: Executor
    answers: tuple[Result, ...]
    stop: Stop

    @property
    def state(self) -> TunerState:
        return self.stop.state

    @property
    def winner(self) -> Candidate:
        """What would be written."""
        return proven_candidate(self.state)

    @property
    def values(self) -> dict[str, Any]:
        """New value by the last part of its path."""
        return {c.path.rsplit(".", 1)[-1]: c.new for c in self.winner.changes}

    @property
    def decisions(self) -> dict[str, Decision]:
        """Decision on each value that a file holds, by the last part of its path."""
        return {
            each.path.rsplit(".", 1)[-1]: each for each in self.all_decisions if not each.in_code
        }

    @property
    def decisions_in_code(self) -> dict[str, Decision]:
        """Decision on each argument of the program's DataLoader that no file holds."""
        return {each.path: each for each in self.all_decisions if each.in_code}

    @property
    def all_decisions(self) -> tuple[Decision, ...]:
        return decisions(self.state, self.winner, self.executor.attempts, self.stop)

    def asked(self, purpose: str) -> list[TrialResult]:
        """Processes for `purpose`, in order."""
        return [attempt for attempt in self.executor.attempts if attempt.request.purpose == purpose]


def formula_search(
    folder: Path,
    engine: RecordedEngine,
    text: str,
    *,
    name: str = "train.yaml",
    workload: dict[str, Any] | None = None,
    cpus: int = QUIET_MACHINE.cpus,
    memory_gib: float = 1e9,
    host_memory_gib: float = 1e9,
    budget_s: float = 1e9,
    gpu: bool = True,
    precisions: tuple[str, ...] = ("float32", "bfloat16"),
    history: History | None = None,
    objective: Objective = THROUGHPUT,
    safe: bool = False,
    options: tuple[str, ...] = (),
    beside: tuple[tuple[str, str], ...] = (),
) -> FormulaSearch:
    """A search over the config `text` in `folder`, whose trials `engine` answers.

    `options` are further words of its command, `beside` further configs: names and texts.
    """
    folder.mkdir(exist_ok=True)
    config = folder / name
    for each, content in ((name, text), *beside):
        (folder / each).write_text(content)
    configs = tuple(documents.read(folder / each) for each in (name, *dict(beside)))
    command = documents.of_command(["python", "train.py", "-c", str(config), *options])
    context = TuningContext(
        sources=tuple(Source(document=d, findings=knobs.find(d)) for d in (*configs, command)),
        workload=Workload.model_validate({"command": "x", "unit": "item", **(workload or {})}),
        objective=objective,
        cpus=cpus,
        memory_limit_gib=memory_gib,
        host_memory_gib=host_memory_gib,
        precisions=precisions,
        has_gpu=gpu,
        smallest_gain=0.03,
        budget_s=budget_s,
        safe=safe,
    )
    executor = Executor(
        engine=engine,
        program=Program(configs=configs, command_line=command, cwd=folder, unit="item"),
        run_cache=RunCache(history=history or Forgetful(), machine_key="m", program_key="p"),
        budget=Budget(total_s=budget_s, clock=engine.clock, started=engine.clock()),
        listener=Quiet(),
    )
    answers: list[Result] = []
    steps = pipeline(context)  # `next_request` replays it from the start for each ask
    with engine:
        turn = next(steps)
        while True:
            answers.append(executor.answer(turn.request, turn.ahead))
            try:
                turn = steps.send(answers[-1])
            except StopIteration as end:
                stop: Stop = end.value
                break
    return FormulaSearch(
        engine=engine, context=context, executor=executor, answers=tuple(answers), stop=stop
    )
