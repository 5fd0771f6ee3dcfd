"""Records of several processes become one run."""

from __future__ import annotations

from advisor.model import MeasurePlan, Run
from advisor.runner.measured_run import probed_run
from advisor.runner.process_records import ProcessRecord
from tests.runner.by_hand import process

BOOTED = ProcessRecord(pid=6, boot_time=90.0)


def run_of(*processes: ProcessRecord, **plan: int) -> Run:
    found = probed_run([BOOTED, *processes], MeasurePlan(**plan))
    assert found is not None
    return found


def test_one_process() -> None:
    """What was not measured is None; a launcher makes no step."""
    run = run_of(process(7, 40.0), process(8, None))
    assert (run.units_per_s, run.units, run.startup_s) == (40.0, 400.0, 9.0)
    assert run.peak_mem_gib == 1.5
    assert (run.losses, run.ranks, run.notes) == ((3.0, 2.0), 1, ())
    assert probed_run([BOOTED, process(7, None)], MeasurePlan()) is None


def test_ranks_add_up() -> None:
    """Rates are summed over ranks, in the order of rank; rank 0 speaks for the rest."""
    ranks = [process(9 - n, 10.0 + n, rank=n, world_size=3, ppid=n) for n in (0, 1, 2)]
    run = run_of(*ranks)
    assert run.rank_units_per_s == (10.0, 11.0, 12.0)
    assert run.units_per_s == 33.0
    assert run.windows == (33.0, 33.0)
    assert (run.peak_host_gib, run.effects.world_size) == (4.5, 3)


def test_a_rank_without_a_window_is_noted_and_not_dropped() -> None:
    """Three of four ranks that step together at 100/s each are a job of 400/s."""
    ranks = [process(9 - n, 100.0, rank=n, world_size=4, ppid=n) for n in (0, 1, 3)]
    run = run_of(*ranks)
    assert run.units_per_s == 400.0
    assert any(note.startswith("3 of 4 ranks have a window") for note in run.notes)


def test_processes_side_by_side_are_one_job() -> None:
    """Children of one parent at one time; without a group none waits for another.

    The loader's ceiling of one of them is none of all.
    """
    ceilings = {"loader": [{"workers": 0, "units_per_s": 90.0}]}
    one = run_of(process(3, 10.0, ceilings=ceilings))
    assert one.ceilings is not None
    assert one.ceilings.loader[0].units_per_s == 90.0
    both = run_of(*(process(n, 10.0, ceilings=ceilings) for n in (3, 4)))
    assert (both.units_per_s, both.ranks, both.effects.group_size, both.notes) == (20.0, 2, 1, ())
    assert both.ceilings is None


def test_parts_of_a_script_are_no_ranks() -> None:
    """One after the other: training counts, and a note names the rest."""
    before = process(3, 500.0, start=50.0, measured={"step_kind": "loader batch"})
    run = run_of(before, process(4, 12.0))
    assert run.units_per_s == 12.0
    assert run.notes == ("other processes that ran steps and were not counted: 1",)


def test_autocast_inside_the_forward_is_seen() -> None:
    """The leaves computed in another dtype than the model's own."""
    seen = {"model_dtype": "float32", "compute_dtype": "bfloat16", "autocast_dtype": None}
    run = run_of(process(3, 1.0, flags=seen))
    assert run.effects.dtype == run.effects.autocast_dtype == "bfloat16"


def test_unfinished_batches_and_a_full_card_are_noted() -> None:
    run = run_of(process(3, 1.0, memory={"alloc_retries": 2}), whole_batches=12)
    assert run.notes[0] == "10 batches were finished to the end, 12 were asked for"
    assert "tried again 2 times: the card is nearly full" in run.notes[1]
