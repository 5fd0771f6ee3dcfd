"""The benchmark of public-style programs: its table is whole, and it finds what is wrong."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from benchmarks.reach.measure import Clock, misread, unproven
from benchmarks.reach.table import PROGRAMS, TABLE, Program

SCRIPT = Program(name="made", command=("python", "train.py"), batch=8, accumulation=2)
RIGHT: dict[str, Any] = {
    "error": 0.01,
    "unit": "samples",
    "batch": 8.0,
    "workers": 0,
    "accumulation": 2.0,
    "ranks": 1,
}


def test_there_are_enough_programs_each_once() -> None:
    """Names are what `--program` takes."""
    assert len({each.name for each in TABLE}) == len(TABLE) >= 24
    folders = {each.folder or each.name for each in TABLE}
    assert folders == {each.name for each in PROGRAMS.iterdir() if each.is_dir()}


@pytest.mark.parametrize("program", TABLE, ids=lambda each: each.name)
def test_each_program_is_there_with_its_config_and_unaware_of_us(program: Program) -> None:
    """Its own clock, and nothing that tells it of gpu-advisor."""
    folder = PROGRAMS / (program.folder or program.name)
    words = [*program.command, *(program.prepare or ())]
    scripts = [word for word in words if word.endswith(".py") and not word.startswith("configs/")]
    assert scripts
    assert all((folder / script).is_file() for script in scripts)
    if program.config is not None:
        assert (folder / program.config).is_file()
        assert program.config in program.command
    sources = [path.read_text() for path in folder.rglob("*.py")]
    assert any("StepClock()" in source for source in sources)
    for source in sources:
        ast.parse(source)
        assert "advisor" not in source.lower()


@pytest.mark.parametrize(
    ("seen", "wrong"),
    [
        ({}, []),
        ({"error": -0.03}, ["rate off by -3.0%"]),
        ({"error": None}, ["the program's clock told too few steps"]),
        ({"batch": 28.0}, ["batch 28.0, not 8"]),
        ({"accumulation": None}, ["accumulation 1.0, not 2"]),
    ],
)
def test_what_a_profile_misreads_is_named(seen: dict[str, Any], wrong: list[str]) -> None:
    """Against the program's row in the table."""
    assert misread(SCRIPT, RIGHT | seen) == wrong


def test_a_batch_that_changes_the_training_is_no_proven_answer() -> None:
    """The product of batch and accumulation stays, or nothing is written."""
    gain = {"ratio": 2.0, "low": 1.5, "high": 2.5}
    batch = {"path": "b", "kind": "batch_size", "from": 8, "to": 16}
    along = {"path": "a", "kind": "grad_accum", "from": 2, "to": 1}
    report = {"verdict": "improved", "gain": gain, "reason": "", "advice": []}
    assert unproven(SCRIPT, {**report, "changes": [batch, along]}) == []
    assert unproven(SCRIPT, {**report, "changes": [batch]}) == [
        "a training batch was written: 8 -> 16"
    ]
    assert unproven(SCRIPT, {**report, "changes": [], "verdict": "partial", "gain": None})


def test_a_clock_is_read_over_the_window_alone() -> None:
    """A last step that its program could not tell of any more ends with the window."""
    clock = Clock(address="", ticks=[(float(t), 4.0) for t in range(8)])
    assert clock.rate(2.0, 6.0) == pytest.approx(4.0)
    assert clock.rate(2.0, 8.0) == pytest.approx(4.0)
    assert clock.rate(20.0, 30.0) is None
