"""A larger model, rung by rung: what it costs, what did not fit, and that nothing is claimed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from advisor.model import Effects, Footprint, Run
from advisor.report import ladder, page, rendering
from advisor.report.model import RungEntry
from tests.report import examples
from tests.report.composing import reported
from tests.report.reading import section
from tests.runs import a_run
from tests.support.simulator.search import formula_search, on_formula

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.report.model import Report

HEADING = "A larger model, rung by rung"
LADDER = {
    "ladder": [
        {"name": "wide", "set": {"width": 64}},
        {"name": "deep", "set": {"depth": 4}},
        {"name": "thick", "set": {"channels": 9}},
    ]
}
TEXT = "batch_size: 1\nwidth: 32\ndepth: 2\nchannels: 3\n"


def climbed(folder: Path, **formula: Any) -> Report:
    """The report of a search with a ladder of three rungs."""
    engine = on_formula(load_s=1e-6, **formula)
    workload = {"phase": "test", **LADDER}
    return reported(formula_search(folder, engine, TEXT, workload=workload, gpu=False), folder)


def told(report: Report) -> str:
    return " ".join(ladder.told(report))


def test_the_highest_rung_that_fitted_is_told_first_with_what_it_costs() -> None:
    """In rate and memory against what the ladder stands on, and what stays free on the card."""
    first = ladder.told(examples.on_gpu())[0]
    assert first == (
        "The highest rung that fitted is twice the width, on top of those below it: it has 45 % of "
        "the rate of what is written, and a step of it holds 20.0 GiB in tensors where that holds "
        "10.0 GiB; 4.0 % of the card's usable memory stays free."
    )


def test_a_rung_that_failed_ends_the_ladder_with_its_reason() -> None:
    """What was not run after it is named, and has no figure."""
    report = examples.on_gpu()
    failed = "The rung a decoder of 32 channels failed (gpu-oom: CUDA out of memory. Tried 3.2 GiB)"
    assert failed in told(report)
    assert "Not run after that: gradient checkpointing." in told(report)
    body = section(rendering.render(report), HEADING)
    assert "| a decoder of 32 channels | `model.decoder` `32` |  |  |  |  | gpu-oom |" in body
    assert "| gradient checkpointing | `model.checkpointing` `true` |  |  |  |  | not run |" in body


def test_no_quality_is_claimed_and_one_process_is_said_to_be_one() -> None:
    body = section(rendering.render(examples.on_gpu()), HEADING)
    assert "a larger model is another product" in body
    assert "nothing of it is written" in body
    assert "Each line is one process, so differences within 2.4 % say nothing." in body


def test_the_parts_add_up_to_what_is_told_together() -> None:
    """In the order of the breakdown of the original; a rung without them has no line there."""
    report = examples.on_gpu()
    wide = ladder.rungs(report)[1]
    assert wide.parts_gib == (1.0, 0.0, 2.0, 16.0, 1.0, 20.0)
    body = section(rendering.render(report), HEADING)
    assert "| rung | model | gradients | optimizer | activations | workspace | together |" in body
    assert "| twice the width | 1.0 GiB | 0 MiB | 2.0 GiB | 16.0 GiB | 1.0 GiB | 20.0 GiB |" in body
    assert body.count("| a decoder of 32 channels |") == 1


def test_a_rung_beyond_the_usable_memory_is_none_that_fitted() -> None:
    """It ran on a card that has more than the target may use."""
    first, wide, *_ = examples.ladder()
    over = wide.model_copy(update={"memory_left": -0.1})
    report = examples.on_gpu(ladder=[first, over])
    assert "No rung above what is written" in told(report)
    assert ladder.rungs(report)[1].note == "more than is usable"


def test_without_a_card_nothing_is_told_of_its_memory() -> None:
    first, wide, *_ = (each.model_copy(update={"memory_left": None}) for each in examples.ladder())
    report = examples.improved(ladder=[first, wide])
    body = section(rendering.render(report), HEADING)
    assert "memory left" not in body
    assert "stays free" not in body


def test_what_was_not_measured_is_no_figure() -> None:
    """An inference has no breakdown, and then no table of one; a page has no table in pieces."""
    entries = [
        RungEntry(name="", outcome="ok", units_per_s=2.0),
        RungEntry(name="wide", settings={"width": 2}, outcome="ok", units_per_s=1.0),
    ]
    report = examples.improved(ladder=entries)
    body = section(rendering.render(report), HEADING)
    assert "together" not in body
    assert "those below it: it has 50 % of the rate of what is written." in body
    assert "|--" not in page.page(report, {})


def test_nothing_stands_in_a_report_without_a_ladder() -> None:
    assert ladder.rungs(examples.improved()) == []
    assert "rung by rung" not in rendering.render(examples.improved())


# --- from a search ------------------------------------------------------------------------


def test_a_search_leaves_every_declared_rung_in_its_report(tmp_path: Path) -> None:
    """What it stands on first; what a rung sets is told on top of the one below."""
    report = climbed(tmp_path)
    assert [entry.name for entry in report.ladder] == ["", "wide", "deep", "thick"]
    assert [entry.outcome for entry in report.ladder] == ["ok"] * 4
    assert report.ladder[2].settings == {"depth": 4}
    assert not any(change.path in {"width", "depth", "channels"} for change in report.changes)
    assert section(rendering.render(report), HEADING)


def test_rungs_above_a_failed_one_stand_there_as_not_run(tmp_path: Path) -> None:
    report = climbed(
        tmp_path, fails=lambda values, trial: "host-oom" if values.get("depth") == 4 else None
    )
    assert [entry.outcome for entry in report.ladder] == ["ok", "ok", "host-oom", "not-run"]
    assert report.ladder[2].detail.startswith("host-oom at")


def test_where_no_rung_came_to_run_there_is_no_ladder_in_the_report(tmp_path: Path) -> None:
    """What it stands on is told elsewhere."""
    report = climbed(
        tmp_path, fails=lambda values, trial: "host-oom" if trial.purpose == "ladder" else None
    )
    assert report.ladder == []
    assert "rung by rung" not in rendering.render(report)


def test_memory_of_rungs_is_none_of_the_trouble_with_the_batch(tmp_path: Path) -> None:
    """The largest batch that ran is told with its own memory, never with a larger model's."""
    calm = examples.on_gpu()
    rung = calm.trials[3].model_copy(
        update={"purpose": "ladder", "batch": 4096.0, "peak_mem_gib": 23.0}
    )
    report = examples.on_gpu(trials=[*calm.trials, rung])
    assert "4,096" not in section(rendering.render(report), "If something goes wrong")


HELD = Footprint(model=4, gradients=0, optimizer=8, activations=16, workspace=1)


@pytest.mark.parametrize(
    ("before", "after", "unfollowed"),
    [
        (HELD, HELD, True),
        (HELD, Footprint(model=4, gradients=0, optimizer=8, activations=2, workspace=1), False),
        (None, None, False),
    ],
    ids=["all-alike", "less-memory", "nothing-known"],
)
def test_a_rung_that_changed_nothing_seen_is_said_not_to_be_followed(
    before: Footprint | None, after: Footprint | None, unfollowed: bool
) -> None:
    """Equal results alone say nothing: gradient checkpointing computes the same with less."""
    calm = examples.ladder()
    assert ladder.alike(ran(after), ran(before)) is unfollowed
    entry = calm[1].model_copy(update={"unfollowed": unfollowed})
    text = told(examples.on_gpu(ladder=[calm[0], entry]))
    assert ("does not follow it" in text) is unfollowed


def ran(footprint: Footprint | None) -> Run:
    return a_run(footprint=footprint, effects=Effects(fingerprint="same"))
