"""What holds of every engine: one protocol, whatever runs behind it."""

import contextlib
import dataclasses
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import StateBusyError
from advisor.executor.engines import Engine, EngineSettings, messages
from advisor.executor.engines.connection import Carrier, Connection, why_ended
from advisor.executor.engines.joint import make_engine
from advisor.executor.engines.local import LocalEngine
from advisor.model import Candidate, Change, Failure, MeasurePlan, Run, Trial, TrialFile
from tests.support.simulator.engine import RecordedEngine
from tests.support.simulator.formula import Formula

PROGRAM = """\
import os, sys, time
open(os.path.join(os.environ["TMPDIR"], "mine"), "w").close()
print("unit", flush=True); time.sleep(0.02); print("unit", flush=True)
sys.exit(int(sys.argv[1]))
"""
PODMAN = """\
#!/bin/sh
[ "$1" = exec ] || exit 125
shift
if [ "$1" = -i ]; then shift; else exec </dev/null; fi
if [ "$1" != box ]; then
  echo "Error: no container with name or ID \\"$1\\" found: no such container" >&2; exit 125
fi
shift
exec "$@"
"""
CHANGE = Change(
    document="c.json", path="loader.batch_size", kind="batch_size", knob_class="free", old=1, new=8
)


def recorded_formula(**_: Any) -> RecordedEngine:
    fails = {3: "crash-start"}
    formula = Formula(
        fails=lambda values, _: fails.get(values.get("status")), switches={"tf32": 1.2}
    )
    return RecordedEngine(formula)


def over_a_pipe(*words: str) -> Engine:
    """Trials by an agent, started on this host by `words`."""
    carrier = Carrier(words=words or ("env",))
    connection = Connection(carrier, tempfile.gettempdir(), os.environ)
    return make_engine(EngineSettings(connection=connection))


def in_a_container() -> Engine:
    """Trials through `podman exec`, which passes its input on only where `-i` says so."""
    folder = Path(tempfile.mkdtemp())
    (folder / "podman").write_text(PODMAN)
    (folder / "podman").chmod(0o755)
    return over_a_pipe(str(folder / "podman"), "exec", "box")


REAL: dict[str, Callable[..., Engine]] = {
    "local": LocalEngine,
    "pipe": over_a_pipe,
    "container": in_a_container,
}
ENGINES = {**REAL, "formula": recorded_formula}


@pytest.fixture(params=ENGINES)
def make(request: pytest.FixtureRequest) -> Callable[..., Engine]:
    """Makes an engine of each kind."""
    return ENGINES[request.param]


def trial_of(engine: Engine, folder: Path, *, status: int = 0, id_: str = "001") -> Trial:
    """A trial of the tiny program; an engine without processes is told by a change how it ends."""
    asked = Change(
        document="command line", path="status", kind="status", knob_class="free",
        old=None, new=status,
    )  # fmt: skip
    return Trial(
        id=id_,
        purpose="search",
        label="batch_size=8",
        candidate=Candidate(changes=(CHANGE, asked)),
        command=(sys.executable, "-c", PROGRAM, str(status)),
        cwd=str(folder),
        scratch=str(engine.scratch(id_)),
        plan=MeasurePlan(mode="whole", unit_regex="^unit"),
    )


def test_a_run_answers_the_trial_that_was_asked(make, folder) -> None:
    """Its id, purpose, label and candidate, and a rate over a window; time passes meanwhile."""
    with make() as engine:
        trial = trial_of(engine, folder)
        before = engine.clock()
        run = engine.run(trial)
        assert isinstance(run, Run), run
        assert run.units_per_s > 0
        assert run.units == pytest.approx(run.units_per_s * (run.window_end - run.window_start))
        assert engine.clock() - before >= run.window_end - run.window_start > 0


def test_a_failure_is_a_value_with_a_next_step(make, folder) -> None:
    """Never an exception, and the next trial runs."""
    with make() as engine:
        outcome = engine.run(trial_of(engine, folder, status=3))
        assert isinstance(outcome, Failure)
        assert outcome.kind == "crash-start"
        assert outcome.evidence
        assert outcome.next_step
        assert isinstance(engine.run(trial_of(engine, folder, id_="002")), Run)


def test_scratch_is_gone_afterwards(make, folder) -> None:
    """Also where the engine is left by an exception."""
    engine = make()
    with contextlib.suppress(ZeroDivisionError), engine:
        trial = trial_of(engine, folder)
        assert Path(trial.scratch).parent.is_dir()
        engine.run(trial)
        raise ZeroDivisionError
    assert not Path(trial.scratch).parent.exists()


RULES = (
    test_a_run_answers_the_trial_that_was_asked,
    test_a_failure_is_a_value_with_a_next_step,
    test_scratch_is_gone_afterwards,
)


@pytest.mark.parametrize("kind", REAL)
def test_a_second_lease_of_one_machine_is_refused_by_name(kind) -> None:
    """Two at once would spoil each other's figures; another card is another lease."""
    with LocalEngine():
        with pytest.raises(StateBusyError, match="Another gpu-advisor measures on this host"):
            REAL[kind]().__enter__()
        with LocalEngine(EngineSettings(gpu_uuid="GPU-1")):
            pass
    with LocalEngine() as again:
        assert again.scratch("1").parent.is_dir()


@pytest.mark.parametrize("kind", REAL)
def test_a_running_trial_is_cancelled_from_another_thread(kind, folder) -> None:
    with REAL[kind]() as engine:
        trial = dataclasses.replace(
            trial_of(engine, folder), command=("sleep", "60"), plan=MeasurePlan(mode="whole")
        )
        threading.Timer(0.3, engine._settings.cancel.set).start()
        outcome = engine.run(trial)
    assert isinstance(outcome, Failure)
    assert outcome.kind == "interrupted"


def test_a_container_that_is_not_there_is_told() -> None:
    ended = why_ended('Error: no container with name or ID "b" found: no such container', 125)
    assert ended.what.startswith("the container is not there")
    assert not ended.again


def test_a_trial_over_a_pipe_is_the_trial_that_was_asked(folder) -> None:
    """Config bytes, limits and unusual text arrive as they were sent."""
    text = "\ufeffname: Straße\n" + "x" * 70_000
    trial = Trial(
        id="1", purpose="search", label="ä", candidate=Candidate(changes=(CHANGE,)),
        command=("cat", "c.yaml"), cwd=str(folder), scratch="/nowhere",
        files=(TrialFile(original="c.yaml", content=text.encode()),),
        env=(("NAME", os.fsdecode(b"\xff")),), total_limit_s=float("inf"),
    )  # fmt: skip
    sent = messages.decode(messages.encode(trial=trial))
    assert messages.read(Trial, sent["trial"]) == trial
