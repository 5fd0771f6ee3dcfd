"""The probe comes in from outside, and the program is none the wiser."""

import ast
import os
import sys
from types import SimpleNamespace

import pytest

from advisor.analysis.events import EventReader
from advisor.model import MeasurePlan
from advisor.probe.session import Patches
from tests.probe.program import (
    PLAN,
    PROBE,
    PROGRAMS,
    WHOLE,
    fresh,
    in_a_file,
    python,
    run,
    with_torch,
)
from tests.support.processes import ran


def test_the_probe_needs_python_3_9_and_the_standard_library() -> None:
    """It runs under the user's interpreter, where nothing else is sure to be there."""
    for path in PROBE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(), feature_version=(3, 9))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            assert all(name.split(".")[0] in sys.stdlib_module_names for name in names), path


def test_a_question_for_torchs_spec_does_not_hide_its_import(tmp_path) -> None:
    """transformers and others ask for it long before they import torch."""
    code = (
        "import importlib.util; assert importlib.util.find_spec('torch')\n"
        "import torch; torch.nn.Linear(2, 2)(torch.zeros(3, 2))"
    )
    (record,) = run(tmp_path, sys.executable, "-c", code, plan=WHOLE).records
    assert record.steps == 1


def test_results_are_bit_exact(tmp_path) -> None:
    """The probe draws no random number, in the program or in its workers."""
    alone = with_torch().call(str(PROGRAMS / "ok_losses.py"), cwd=tmp_path)
    outcome = python(tmp_path, "ok_losses.py", plan=WHOLE)
    assert outcome.stdout == alone.stdout
    assert len(alone.stdout.splitlines()) == 40
    assert outcome.measured.whole_units == 160


def test_another_sitecustomize_still_runs_once(tmp_path) -> None:
    """The next one on the path is run in place of ours."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("print('theirs')\nMARK = 1\n")
    ours = "any(p.endswith('probe/site') for p in sys.path)"
    code = f"import sys, sitecustomize; print(sitecustomize.MARK, {ours})"
    outcome = run(tmp_path, sys.executable, "-c", code, env={"PYTHONPATH": str(folder)}, plan=WHOLE)
    assert outcome.stdout.split() == ["theirs", "1", "False"]
    assert len(outcome.records) == 1


def test_nothing_of_the_program_is_shadowed(tmp_path) -> None:
    """Its own modules named like ours are its own."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    for name in ("log", "record", "session", "steps", "window"):
        (folder / f"{name}.py").write_text("MINE = True\n")
    names = "log, record, session, steps, window"
    code = f"import {names}; print(all(m.MINE for m in ({names})))"
    outcome = run(tmp_path, sys.executable, "-c", code, plan=WHOLE)
    assert outcome.stdout.strip() == "True"


def test_a_broken_spec_leaves_the_program_alone(tmp_path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text("{")
    env = {**os.environ, "GPU_ADVISOR_SPEC": str(spec), "PYTHONPATH": str(PROBE / "site")}
    done = ran(sys.executable, "-c", "print('here')", env=env, check=True)
    assert done.stdout.strip() == "here"
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("where", "last_line"),
    [
        ("import", "ModuleNotFoundError: No module named 'a_module_that_is_not_there'"),
        ("start", "ValueError: no such setting: width"),
        ("step", "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 4x1)"),
    ],
)
def test_an_uncaught_exception_is_noted(tmp_path, where, last_line) -> None:
    """What, and how far the program was; what it prints is unchanged."""
    outcome = python(tmp_path, "ok_raises.py", where, plan=WHOLE)
    (record,) = outcome.records
    assert record.exception.where == where
    assert last_line == f"{record.exception.type}: {record.exception.message}"
    assert outcome.exit_code == 1
    assert outcome.stderr.splitlines()[-1] == last_line


def test_a_swallowed_out_of_memory_is_seen(tmp_path) -> None:
    """Exit code 0 does not hide it. The record is whole: replaced, never rewritten in place."""
    outcome = python(tmp_path, "ok_raises.py", "caught", plan=WHOLE)
    assert outcome.exit_code == 0
    (record,) = outcome.records
    assert record.exception is None
    assert record.unread is None
    assert [e.where for e in record.caught] == ["forward"]
    assert not list((tmp_path / "probe").glob("*.tmp"))


def test_a_swallowed_out_of_memory_is_seen_while_steps_are_only_counted(tmp_path) -> None:
    """Forwards and passes are not recorded then; their out-of-memory errors are, once each."""
    plan = MeasurePlan(measure_s=3.0, min_steps=400)
    outcome = python(tmp_path, "fail_training.py", "late-oom", plan=plan)
    assert outcome.measured.units_per_s > 0
    (record,) = outcome.records
    assert [each.where for each in record.caught] == ["step"]
    reader = EventReader()
    reader.feed((tmp_path / "probe" / f"events-{record.pid}.jsonl").read_bytes())
    log = reader.log
    assert log.hooks[-1].counting
    assert not log.hooks[-1].calls
    assert max(each.end for each in (*log.calls, *log.backwards)) <= log.hooks[-1].time


WHILE_HANDLING = """
import torch

class InPlace(torch.nn.Linear):
    def forward(self, x):
        x.copy_(super().forward(x))

model = {model}
with torch.no_grad():
    try:
        raise ValueError("too large a batch")
    except ValueError:
        for _ in range(30):
            model(torch.zeros(4, 2))
"""


@pytest.mark.parametrize(
    "model", ["InPlace(2, 2)", "torch.compile(InPlace(2, 2), backend='eager')"]
)
def test_a_call_beside_a_handled_error_has_not_failed(model, tmp_path) -> None:
    """A network may write in place and return nothing, while the program handles something."""
    outcome = in_a_file(tmp_path, WHILE_HANDLING.replace("{model}", model))
    (record,) = outcome.records
    assert record.caught == ()
    assert record.steps == 30


def test_a_function_that_the_program_put_over_ours_stays() -> None:
    """Taking our hook back must not take the program's along."""
    owner, patches = SimpleNamespace(work=lambda: 1), Patches()
    original = owner.work
    patches.wrap(owner, "work")(lambda work: work() + 10)
    assert owner.work() == 11
    patches.undo()
    assert owner.work is original
    patches.wrap(owner, "work")(lambda work: work() + 10)
    ours = owner.work
    owner.work = lambda: ours() + 100
    patches.undo()
    assert owner.work() == 111


def test_stacks_are_written_on_request(tmp_path) -> None:
    """SIGUSR1 writes every thread's stack, also while Python does not run."""
    code = (
        "import os, signal, time\n"
        "def stuck():\n    os.kill(os.getpid(), signal.SIGUSR1); time.sleep(0.2)\nstuck()"
    )
    run(tmp_path, sys.executable, "-c", code, plan=WHOLE)
    (stacks,) = (tmp_path / "probe").glob("stacks-*.txt")
    assert "in stuck" in stacks.read_text()


def test_a_look_that_fails_once_is_taken_again(tmp_path) -> None:
    """With more steps it may go well; the failure is told, and the rate is there."""
    program = str(PROGRAMS / "fail_probe.py")
    outcome = run(tmp_path, sys.executable, program, "1", plan=PLAN)
    (record,) = outcome.records
    assert record.state == "stopped"
    assert "no step has a length" in record.errors[0]
    assert outcome.reading is not None


def test_an_exception_is_noted_under_a_hook_of_the_programs_own(tmp_path) -> None:
    """Logging libraries put theirs over ours."""
    code = "import sys, torch\nsys.excepthook = lambda *_: print('oh dear')\n{}[7]\n"
    outcome = in_a_file(tmp_path, code, begin=fresh)
    (record,) = outcome.records
    assert outcome.stdout == "oh dear\n"
    assert record.exception.lines == ["KeyError: 7"]


PLACES = ("copy", "forward", "loss module", "functional loss")


@pytest.mark.parametrize(
    ("place", "way"),
    [*((place, way) for place in PLACES for way in ((), ("infer",))), ("update", ())],
)
def test_an_out_of_memory_error_is_seen_wherever_the_program_swallows_it(
    place, way, tmp_path
) -> None:
    """In the copy to the card, the loss and the optimizer's step as in a module's call."""
    outcome = python(tmp_path, "lost_work.py", place, *way, plan=WHOLE)
    assert outcome.exit_code == 0
    (record,) = outcome.records
    assert {each.type for each in record.caught} == {"OutOfMemoryError"}
