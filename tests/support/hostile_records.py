"""What a hostile or broken program could leave: records, event logs, clocks and outputs at random.

A case is made from its number alone. It goes the way that a run goes, from the files in its folder
to the verdict of a gate, with the functions that do it there. Anything that they raise is a fault:
nothing that a program writes may end a call.
"""

import copy
import json
import math
import os
import random
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advisor import settings
from advisor.errors import ReportError
from advisor.gate import checkout, report
from advisor.gate.config import GateProgram
from advisor.gate.process import NoRateError, entry_of, rate_of, read_suite
from advisor.gate.schema import Inputs, PairEntry, ProgramEntry, RunEntry
from advisor.gate.verdict import decide
from advisor.masking import mask_value
from advisor.model import Candidate, Failure, MeasurePlan, OutputPattern, Run, Trial
from advisor.probe.origins import FILE as ORIGINS
from advisor.probe.recorder import VERSION
from advisor.runner.classify import classify, log_tail, wanted
from advisor.runner.measured_run import failed_effects, measured_run
from advisor.runner.measuring import Measuring
from advisor.runner.monitor import End, TrialExit
from advisor.runner.output import Printed, Stream, Tally, joined
from advisor.runner.process_records import Records
from advisor.runner.resources import Reading

JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, -(10**30), 10**400, 0.0, -0.0, 1e-9, 5e-324,
    1e308, -1e308, math.nan, math.inf, -math.inf, "", "x", "\0", "\ud800", "9" * 5000, "inf",
    "a\nb", [], [1], [[[]]], [None] * 3, {}, {"a": 1}, {"a": [1]}, {"type": 1},
    "Traceback (most recent call last):", "CUDA out of memory", "../../x", "/" * 3000,
)  # fmt: skip
STATES = ("booted", "torch", "stepping", "aside", "stopped", "exited")
ENDS: tuple[End, ...] = (
    "exited", "measured", "start-limit", "hang", "total-limit", "cancelled", "not-started",
)  # fmt: skip
PLANS = (
    MeasurePlan(mode="whole"),
    MeasurePlan(measure_s=0.5, min_steps=5),
    MeasurePlan(mode="observe"),
    MeasurePlan(measure_s=0.5, min_steps=5, validation=True),
    MeasurePlan(measure_s=0.5, longest_s=0.2, ceilings_workers=(0, 1)),
    MeasurePlan(mode="whole", unit_regex=r"row (\S+)"),
    MeasurePlan(unit_regex=r"row (\S+)"),
)
LINES = (
    "throughput: {}", "row {}", "score: {}", "Failed: {}", "Traceback (most recent call last):",
    '  File "x.py", line {}, in f', "ValueError: {}", "[rank1]: CUDA out of memory", "usage: {}",
    "\x1b[31m{}\x1b[0m", "\r{}", "terminated with signal SIGKILL", "{}", "::error::{}",
)  # fmt: skip
NUMBERS = (
    "1", "12.5", "0", "-0", "5e-324", "1e-320", "1e308", "-3", "nan", "inf", "-inf", "1e999",
    "9" * 400, "1_000", "1,000", "x", "", "0x10", "\uff11\uff12",
)  # fmt: skip
PROGRAM = GateProgram(
    name="train",
    workload=settings.Workload(command="python train.py", metric_regex=None, unit="sample"),
)
SCORE = OutputPattern(name="score", pattern=r"score:\s+(\S+)", matches="each")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A case that raised, or that took long."""

    kind: str
    number: int
    told: str

    def __str__(self) -> str:
        return f"{self.kind} {self.number}: {self.told}"


def damaged(rng: random.Random, value: Any) -> Any:
    """`value` with a few of its parts replaced, left out, repeated or renamed."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        places = [value]
        while rng.random() < 0.7 and (inner := [p for p in _parts(places[-1]) if _parts(p)]):
            places.append(rng.choice(inner))
        place = places[-1]
        if isinstance(place, dict) and place:
            key = rng.choice(list(place))
            how = rng.random()
            if how < 0.7:
                place[key] = copy.deepcopy(rng.choice(JUNK))
            elif how < 0.85:
                del place[key]
            else:
                place[rng.choice(("", "pid", "extra", "\0"))] = place.pop(key)
        elif isinstance(place, list) and place:
            at = rng.randrange(len(place))
            how = rng.random()
            if how < 0.6:
                place[at] = copy.deepcopy(rng.choice(JUNK))
            elif how < 0.8:
                del place[at]
            else:
                place.insert(at, copy.deepcopy(place[at]))
    return value


def _parts(value: Any) -> list[Any]:
    return (
        [*value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    )


def broken(rng: random.Random, data: bytes) -> bytes:
    """Mostly `data` as it is; else cut short, with odd bytes, or something else."""
    how = rng.random()
    at = rng.randrange(len(data) + 1)
    if how < 0.85:
        return data
    if how < 0.9:
        return data[:at]
    if how < 0.95:
        return data[:at] + rng.randbytes(rng.randrange(1, 8)) + data[at:]
    return rng.choice((b"", b"null", b"[" * 50_000, b"\xff\xfe", b'{"version": 1e999}', b"[]"))


def text_of(value: Any) -> bytes:
    """JSON as a program could write it, NaN, infinities and lone surrogates with it."""
    return json.dumps(value).encode()


def record(rng: random.Random, pid: int) -> Any:
    """Record of one process, as its file could hold it."""
    start = rng.choice((1000.0, time.time(), 0.0, 1e10))
    raised = {"type": "ValueError", "message": "odd", "where": "step", "tail": "x", "time": start}
    whole = {
        "version": VERSION, "pid": pid, "ppid": rng.choice((1, pid, pid - 1)),
        "boot_time": start - 5, "state": rng.choice(STATES), "alone": rng.random() < 0.1,
        "steps": rng.choice((0, 1, 40)), "whole_steps": rng.choice((0, 40)),
        "optimizers_built": rng.choice((0, 1)), "last_step_time": start + 10,
        "rank": rng.choice((0, 0, 1)), "world_size": rng.choice((1, 1, 2)),
        "exception": rng.choice((None, None, raised)), "swallowed": rng.choice(([], [raised] * 2)),
        "guard": None, "writes": ["a.txt"], "altered": [], "errors": rng.choice(([], ["x"], [""])),
        "notes": ["n"], "losses": [3.0, 2.0], "arguments": {"lr": 0.1},
        "memory": {"allocated_gib": 1.5, "reserved_gib": 2.0, "alloc_retries": 0},
        "card": {"index": 0, "name": "H200", "uuid": "GPU-1", "total_gib": 139.0},
        "collectives": rng.choice((None, 3)), "skipped_updates": 0,
        "overrides": [{"knob": "x", "applied": True}],
        "ceilings": [{"workers": 0, "units_per_s": 9.0}],
        "flops": {"per_step": 1e9}, "trace": None,
        "footprint": {"model": 1, "gradients": 1, "optimizer": 1, "activations": 1},
    }  # fmt: skip
    least = {name: whole[name] for name in ("version", "state", "steps")}
    return damaged(rng, rng.choice((whole, whole, least)))


def events(rng: random.Random) -> list[Any]:
    """Event log of a training or an inference, with odd times among ordinary ones."""
    now, found = rng.choice((0.0, 5.0, 1e9)), []
    found.append(["clock", rng.choice((0.0, 1000.0, time.time(), 1e10))])
    arguments = {"num_workers": rng.choice((0, 2)), "batch_size": 4}
    facts = {"site": "a.py:1", "iterated": True, "pass_items": 64, "arguments": arguments}
    found.append(["loader", 0, facts])
    found.append(["module", 0, {"name": "Net", "parameters": 9, "flags": {"device": "cpu"}}])
    step_s = rng.choice((0.0, 1e-12, 0.001, 0.05, 1e7))
    trains = rng.random() < 0.7
    for step in range(rng.choice((0, 1, 3, 30, 90))):
        found.append(["batch", now, now + step_s / 4, 0, rng.choice((4.0, 4.0, 0.0, -1.0))])
        found.append(["call", now + step_s / 4, now + step_s / 2, 0, 4.0, trains])
        if trains:
            found.append(["backward", now + step_s / 2, now + step_s])
            found.append(["step", now + step_s, now + step_s, 1])
        if step == 12 and rng.random() < 0.5:
            found.append(["hooks", now + step_s, True, True])
        if rng.random() < 0.02:
            now += rng.choice((-10.0, 3600.0, -step_s, 1e12))
        now += step_s
    rng.random() < 0.1 and rng.shuffle(found)
    for _ in range(rng.choice((0, 0, 1, 3))):
        at = rng.randrange(len(found) + 1)
        odd = rng.choice(JUNK)
        events_of = (
            ["step", odd, odd, 1], [odd], odd, ["mark", 1.0, odd], ["numbers", 0, {"a": odd}],
            ["warm", odd], ["spent", odd, 1.0], ["save", 0.0, odd], ["clock", odd],
            ["wait", 0.0, odd, "", ""],
        )  # fmt: skip
        found.insert(at, rng.choice(events_of))
    return damaged(rng, found)


def output(rng: random.Random) -> bytes:
    """Lines with odd numbers, odd ends and odd lengths."""
    lines = []
    for _ in range(rng.choice((0, 1, 3, 20))):
        line = rng.choice(LINES).format(rng.choice(NUMBERS))
        lines.append(line * rng.choice((1,) * 20 + (5000,)))
    ends = [rng.choice(("\n", "\n", "\n", "\r\n", "\r", "")) for _ in lines]
    whole = "".join(a + b for a, b in zip(lines, ends, strict=True)).encode(errors="replace")
    return broken(rng, whole)


def printed_of(rng: random.Random, trial: Trial) -> tuple[Tally, Printed]:
    """What is seen of a program that prints on both streams."""
    tally, seen = Tally(trial.plan.unit_regex), []
    for _ in range(2):
        readable, writable = os.pipe()
        stream = Stream(readable, "fuzz", tally, wanted(trial))
        with os.fdopen(writable, "wb") as pipe:
            pipe.write(output(rng))
        stream.join()
        seen.append(stream.printed())
    return tally, joined(*seen)


def run_of(rng: random.Random, folder: Path) -> Run | Failure:
    """Judge one trial as the runner does, from what lies in its folder."""
    probe = folder / "probe"
    probe.mkdir()
    for pid in range(7, 7 + rng.choice((0, 1, 1, 2, 3))):
        (probe / f"{pid}.json").write_bytes(broken(rng, text_of(record(rng, pid))))
        (probe / f"events-{pid}.jsonl").write_bytes(broken(rng, text_of(events(rng)) + b"\n"))
        if rng.random() < 0.1:
            (probe / f"stacks-{pid}.txt").write_bytes(output(rng))
    if rng.random() < 0.1:
        (probe / "stop.json").write_bytes(broken(rng, text_of({"kind": "step", "count": 3})))
    plan = replace(rng.choice(PLANS), figures=(rate_of(PROGRAM), SCORE))
    trial = Trial(
        id="1", purpose="gate", label="head", candidate=Candidate(), command=("python", "x.py"),
        cwd="/", scratch=str(folder), plan=plan,
    )  # fmt: skip
    records, measuring = Records(probe), Measuring(probe, plan)
    for _ in range(2):
        measuring.update(records.read())
    tally, printed = printed_of(rng, trial)
    times = sorted(rng.choice((0.0, 1.0, 1e9, time.time())) for _ in range(2))
    if rng.random() < 0.3:  # lines at odd moments, as after a step of the clock
        tally.marks = tuple(Reading(rng.choice((0.0, 5.0, -1e9, 3600.0)), n) for n in range(4))
        tally.lines = len(tally.marks)
    ending = TrialExit(
        end=rng.choice(ENDS), started=times[0], ended=times[1],
        exit_code=rng.choice((None, 0, 0, 0, 1, 2, 137, -9, -11, 97)), stdout=printed.tail,
        stderr=printed.tail, processes=measuring.finish(records.read()), printed=printed,
        silence_s=rng.choice((0.0, 9.0)), count=tally,
        stacks="\n".join(records.stacks().values()),
    )  # fmt: skip
    run = measured_run(trial, ending)
    problem = classify(trial, ending, measured=run is not None)
    facts = {"wall_s": ending.wall_s, "exit_code": ending.exit_code,
             "figures": dict(printed.figures), "cut_lines": printed.cut_lines}  # fmt: skip
    if problem is not None:
        return replace(
            problem, log_tail=log_tail(ending), effects=failed_effects(ending.processes), **facts
        )
    assert run is not None
    return replace(run, to_its_end=plan.mode == "whole", **facts)


def a_trial(rng: random.Random) -> None:
    """Records, events, clocks and output of one trial, to its run or failure."""
    with tempfile.TemporaryDirectory() as folder:
        found = run_of(rng, Path(folder))
        if isinstance(found, Run):
            assert math.isfinite(found.units_per_s), "a rate is a number"
            assert found.units_per_s > 0, "a run did something"


def a_gate(rng: random.Random) -> None:
    """Pairs of such runs, to the verdict, its record and its report."""
    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        made: dict[str, list[RunEntry]] = {"base": [], "head": []}
        for number in range(4):
            place = Path(folder, str(number))
            place.mkdir()
            result = run_of(rng, place)
            if rng.random() < 0.3:
                place.joinpath("benchmark.json").write_bytes(suite(rng))
            arm: Any = ("base", "head")[number % 2]
            made[arm].append(entry_of(result, PROGRAM, arm, place))
        for number in range(rng.choice((1, 5, 12))):
            base, head = (rng.choice(made[arm]) for arm in ("base", "head"))
            order: Any = rng.choice(("base first", "head first"))
            pairs.append(PairEntry(number=number + 1, order=order, base=base, head=head))
    entry = ProgramEntry(name="train", command="x", definition="d", pairs=pairs)
    found = decide([entry], Inputs())
    found = type(found).model_validate(mask_value(found.model_dump()))
    report.markdown(found)
    report.comment(type(found).model_validate_json(found.model_dump_json()))


def suite(rng: random.Random) -> bytes:
    """JSON of a suite, of either kind."""
    names = ("a", "b", "a", "x" * 2000, "|", "\n", "", "`")
    if rng.random() < 0.5:
        stats = [{"fullname": rng.choice(names), "stats": {"mean": 0.5}} for _ in range(3)]
        return broken(rng, text_of(damaged(rng, {"benchmarks": stats})))
    values = [{"name": n, "value": rng.choice((3, 0.5, 1e200)), "unit": "x"} for n in names[:2]]
    return broken(rng, text_of(damaged(rng, values)))


def a_suite(rng: random.Random) -> None:
    try:
        _, rates = read_suite(suite(rng))
    except NoRateError:
        return
    assert all(0 < rate.mean < math.inf for rate in rates.values())


def a_list_of_files(rng: random.Random) -> None:
    """What a run says of the files that it loaded."""
    with tempfile.TemporaryDirectory() as folder:
        tops: Mapping[Any, Path] = {"base": Path(folder, "base"), "head": Path(folder, "head")}
        Path(folder, "probe").mkdir()
        paths = (f"{folder}/base/a.py", f"{folder}/head/a.py", "/x/a.py", "a.py", "\0", "/" * 5000,
                 f"{folder}/head/" + "d/" * 2000 + "a.py", f"{folder}/base/\0/a.py")  # fmt: skip
        entries = [
            {"how": rng.choice(("ran", "read")), "path": rng.choice(paths), "sha256": "0" * 64}
            for _ in range(4)
        ]
        lines = b"\n".join(broken(rng, text_of(damaged(rng, each))) for each in entries)
        Path(folder, "probe", ORIGINS).write_bytes(lines)
        changed: Mapping[str, Mapping[Any, str | None]] = {"a.py": {"base": "0" * 64, "head": "1"}}
        between = checkout.Difference(tops=tops, changed=changed)
        checkout.loaded(Path(folder), tops["head"], between)


def a_saved_record(rng: random.Random) -> None:
    """gate.json as an artifact of a fork brings it to the commenter."""
    rate = {"mean": 100.0, "unit": "sample"}
    run = {"wall_s": 1.0, "source": "probe", "rates": {"train": rate}}
    pair = {"number": 1, "order": "base first", "base": {**run, "arm": "base"},
            "head": {**run, "arm": "head"}}  # fmt: skip
    program = {"name": "train", "command": "x", "definition": "d", "pairs": [pair]}
    workload = {"name": "train", "program": "train", "verdict": "pass", "reason": "r",
                "slowdown_pct": 1.0, "ci_low_pct": 0.0, "ci_high_pct": 2.0, "confidence": 0.9,
                "threshold": 0.05, "base_units_per_s": 100.0, "head_units_per_s": 99.0,
                "noise_pct": 1.0, "pairs": 5}  # fmt: skip
    whole = {"verdict": "pass", "reason": "r", "schema_version": 4, "programs": [program],
             "workloads": [workload], "written_by": "gpu-advisor", "base": {"sha": "a" * 40},
             "host": None, "inputs": {"threshold": 0.05}}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "gate.json")
        path.write_bytes(broken(rng, text_of(damaged(rng, whole))))
        try:
            report.comment(report.read(path))
        except ReportError:
            return


KINDS: dict[str, Callable[[random.Random], None]] = {
    "trial": a_trial,
    "gate": a_gate,
    "suite": a_suite,
    "loaded files": a_list_of_files,
    "saved record": a_saved_record,
}
WEIGHTS = {"trial": 10, "gate": 4, "suite": 3, "loaded files": 1, "saved record": 2}
"""Of twenty cases."""


def faults(cases: int, seed: int, slow_s: float = math.inf) -> Iterator[Fault]:
    """Cases that raised, or that took more than `slow_s` of CPU; all come from the seed."""
    order = [kind for kind, many in WEIGHTS.items() for _ in range(many)]
    for number in range(cases):
        kind = order[number % len(order)]
        begun = time.process_time()
        try:
            KINDS[kind](random.Random(f"{seed} {number}"))
        except Exception:
            yield Fault(kind=kind, number=number, told=traceback.format_exc(limit=-3))
        if (took_s := time.process_time() - begun) > slow_s:
            yield Fault(kind=kind, number=number, told=f"it took {took_s:.1f} s")
