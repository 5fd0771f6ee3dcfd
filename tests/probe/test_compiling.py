"""Programs that compile, begun where the compiler is imported: what was compiled is seen, nothing
of ours is in it, and whatever fails in the probe, the program goes on unharmed."""

import json

import pytest

from advisor.model import MeasurePlan, Override
from advisor.probe import training_hooks
from advisor.probe.session import Session
from tests.probe.program import compiling, python

torch = pytest.importorskip("torch")

NOTED = (
    "batches.LayerObserver",
    "batches.walk",
    "control._obey",
    "control._tick",
    "dataloader_hooks.begins",
    "dataloader_hooks.built",
    "dataloader_hooks.describe",
    "module_facts._note_shapes",
    "module_facts.describe",
    "module_facts.flags",
    "module_facts.items_of",
    "module_facts.look",
    "module_facts.register",
    "module_facts.samples",
    "batches._lengths",
    "record.facts",
    "record.memory",
    "recorder.Recorder.flush",
    "training_hooks._keep_loss",
    "training_hooks.loss_values",
    "training_hooks.stepped",
)
"""Functions of the probe that a hook or the record calls."""
SILENT = ("record.beat", "record.write", "session.Session.fail")
"""Those without which nothing can be written down."""
FACTS = ("record.memory", "training_hooks.loss_values")
"""Facts that take no other along where they cannot be read."""
UNUSED = ("batches.walk", "batches._lengths")


@pytest.mark.parametrize("how", ["module", "in-place"])
def test_a_compiled_module_is_not_traced_into_us(tmp_path, how) -> None:
    """No graph break and no warning because of the probe; the calls are seen all the same."""
    outcome = python(tmp_path, "ok_compiled.py", how, begin=compiling)
    reading = outcome.measured
    assert outcome.stdout.strip() == "breaks 0"
    assert "hooks" not in outcome.stderr
    assert reading.effects.compiled is True
    assert reading.units_per_s == pytest.approx(outcome.true_rate(), rel=0.03)


def test_a_compiled_recurrent_module_is_counted_along_its_batch(tmp_path) -> None:
    """Its words come in columns; the state, whose first dimension are layers, is no batch."""
    outcome = python(tmp_path, "ok_compiled.py", "words", begin=compiling)
    assert outcome.measured.effects.batch == 4
    assert outcome.measured.units_per_s == pytest.approx(outcome.true_rate(), rel=0.03)


def test_compilation_is_kept_out_of_the_window(tmp_path) -> None:
    """The window begins after the calls that compiled, and their cost is told; what was not asked
    for stays."""
    eager = Override(knob="compile", value="eager")
    plan = MeasurePlan(measure_s=0.3, min_steps=5, overrides=(eager,))
    outcome = python(tmp_path, "whatif_loop.py", plan=plan, begin=compiling)
    reading, (record,) = outcome.measured, outcome.records
    seen = reading.effects
    assert seen.compiled is True
    assert seen.workers == 0
    assert seen.batch == 4
    assert seen.dtype == "float32"
    (outcome_of_eager,) = reading.overrides
    assert outcome_of_eager.cost_s
    waited_s = reading.window_start - record.measurement.first_step
    assert waited_s > outcome_of_eager.cost_s


def test_each_fault_in_turn_leaves_the_program_unharmed(tmp_path) -> None:
    """Whatever fails in the probe is told in the record. A process for each function that raises;
    all print what the program prints alone."""
    names = ("none", *NOTED, *SILENT)
    plan = MeasurePlan(measure_s=1000.0)
    outcome = python(tmp_path, "ok_faults.py", *names, plan=plan, timeout_s=300, begin=compiling)
    assert outcome.exit_code == 0, outcome.stderr
    lines = outcome.stdout.splitlines()
    assert len(lines) == len(names)
    printed = {name: line.split(" ", 2) for name, line in zip(names, lines, strict=True)}
    _, _, expected = printed["none"]
    harmed = {n: (c, t[:300]) for n, (c, _, t) in printed.items() if (c, t) != ("0", expected)}
    assert harmed == {}
    folder = tmp_path / "probe"
    for name in NOTED:
        record = folder / f"{printed[name][1]}.json"
        errors = json.loads(record.read_text())["errors"]
        if name not in UNUSED:
            assert any(f"fault in {name}" in error for error in errors), (name, errors)
    for name in FACTS:
        content = json.loads((folder / f"{printed[name][1]}.json").read_text())
        assert content["fused"] is False, (name, content)


class Overwritten:
    """A loss in memory that a CUDA graph has used again."""

    def __float__(self) -> float:
        msg = "accessing tensor output of CUDAGraphs that has been overwritten"
        raise RuntimeError(msg)


def test_a_loss_that_cannot_be_read_takes_no_other_along(tmp_path) -> None:
    """It is left out, and noted."""
    session = Session({"records": str(tmp_path)})
    session.losses = [torch.tensor(2.0), Overwritten(), torch.tensor(1.0)]
    assert training_hooks.loss_values(session) == [2.0, 1.0]
    assert "overwritten" in session.notes[0]
