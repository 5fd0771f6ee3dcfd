"""Whatever fails in the probe, the program goes on unharmed, and the record says what failed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from advisor.model import MeasurePlan
from tests.probe.program import python

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")

NOTED = (
    "batches.Counter.count",
    "batches.copied",
    "ceilings.begin",
    "control._look",
    "inner.Watch",
    "inner.Watch.close",
    "inner.Watch.enter",
    "inner.Watch.leave",
    "inner.Watch.resume",
    "inner.Watch.suspend",
    "inner.begin",
    "inner.end",
    "loaders.begins",
    "loaders.built",
    "loaders.call_site",
    "log.Rota.turn",
    "measure.facts",
    "measure.measured",
    "observe.fingerprint",
    "observe.keep_loss",
    "observe.loss_values",
    "observe.memory",
    "padding.Padding.note",
    "padding.Padding.told",
    "roots._look",
    "roots._note_shapes",
    "roots._samples",
    "roots._watch_leaves",
    "roots.enter",
    "roots.known",
    "roots.leave",
    "roots.listen",
    "roots.look",
    "roots.noted",
    "steps.read",
    "training.read",
    "window.find",
)
"""Functions of the probe that a hook or the record calls."""
SILENT = ("record.beat", "record.full", "record.put", "record.write", "session.Session.fail")
"""Those without which nothing can be written down."""
FACTS = {
    "observe.memory": "memory",
    "observe.loss_values": "losses",
    "observe.fingerprint": "fingerprint",
}
"""One fact that cannot be read takes no other along: the keys that the others have in a record."""
UNUSED = ("batches.copied", "ceilings.begin", "inner.Watch.resume")


@pytest.mark.parametrize("mode", ["whole", "window"])
def test_each_fault_in_turn_leaves_the_program_unharmed(tmp_path: Path, mode: str) -> None:
    """A process for each function that raises; all print what the program prints alone."""
    names = ("none", *NOTED, *SILENT)
    plan = MeasurePlan(mode=mode, measure_s=1000.0)
    outcome = python(tmp_path, "ok_faults.py", *names, plan=plan, timeout_s=300)
    assert outcome.exit_code == 0, outcome.stderr
    lines = outcome.stdout.splitlines()
    assert len(lines) == len(names)
    told = {name: line.split(" ", 2) for name, line in zip(names, lines, strict=True)}
    _, _, expected = told["none"]
    harmed = {n: (c, t[:300]) for n, (c, _, t) in told.items() if (c, t) != ("0", expected)}
    assert harmed == {}
    folder = tmp_path / "probe"
    for name in NOTED:
        record = folder / f"{told[name][1]}.json"
        errors = json.loads(record.read_text())["errors"]
        if name not in UNUSED:
            assert any(f"fault in {name}" in error for error in errors), (name, errors)
    for name, lost in FACTS.items():
        content = json.loads((folder / f"{told[name][1]}.json").read_text())
        kept = [bool(content[fact]) for fact in FACTS.values() if fact != lost]
        assert all(kept), (name, content)
        assert content["seen"]["device"] == "cpu"
