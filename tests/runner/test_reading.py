"""Records of several processes become one reading."""

from __future__ import annotations

from advisor.model import MeasurePlan, Shares
from advisor.runner.reading import Reading
from advisor.runner.reading import read as read_all
from advisor.runner.records import ProcessRecord
from tests.runner.by_hand import process

BOOTED = ProcessRecord(pid=6, boot_time=90.0)


def read(*processes: ProcessRecord, **plan: int) -> Reading:
    found = read_all([BOOTED, *processes], MeasurePlan(**plan))
    assert found is not None
    return found


def test_nothing_measured_is_no_reading() -> None:
    """A launcher boots and imports torch, and makes no step."""
    assert read_all([BOOTED, process(7, None)], MeasurePlan()) is None


def test_one_process() -> None:
    """Facts come over as they are; what was not measured is None."""
    reading = read(process(7, 40.0), process(8, None))
    assert reading.units_per_s == 40.0
    assert reading.units == 400.0
    assert reading.startup_s == 9.0
    assert reading.peak_mem_gib == 1.5
    assert reading.alloc_retries is None
    assert reading.losses == (3.0, 2.0)
    assert reading.shares.validation is None
    assert reading.ranks == 1


def test_ranks_add_up() -> None:
    """Rates are summed over ranks, in the order of rank; rank 0 speaks for the rest."""
    ranks = [process(9 - n, 10.0 + n, rank=n, world_size=3, ppid=n) for n in (0, 1, 2)]
    reading = read(*ranks)
    assert reading.rank_units_per_s == (10.0, 11.0, 12.0)
    assert reading.units_per_s == 33.0
    assert [[part.units for part in each] for each in reading.parts] == [
        [50.0, 50.0],
        [55.0, 55.0],
        [60.0, 60.0],
    ]
    assert reading.peak_host_gib == 4.5
    assert reading.effects.world_size == 3


def test_a_rank_that_says_nothing_is_told_and_not_dropped() -> None:
    """Three of four ranks that step together at 100/s each are a job of 400/s."""
    ranks = [process(9 - n, 100.0, rank=n, world_size=4, ppid=n) for n in (0, 1, 3)]
    reading = read(*ranks)
    assert reading.units_per_s == 400.0
    assert any(note.startswith("3 of 4 ranks told") for note in reading.notes)


def test_on_gpus_the_straggler_is_the_rank_whose_card_works_least() -> None:
    """The others wait for it in their streams: the host's time in a backward tells nothing."""
    ranks = [
        process(
            9 - n,
            10.0,
            rank=n,
            world_size=2,
            ppid=n,
            measured={"shares": Shares(compute=c, launch=0.0), "backward_share": b},
        )
        for n, c, b in ((0, 0.9, 0.1), (1, 0.6, 0.4))
    ]
    reading = read(*ranks)
    assert any(note.startswith("rank 1 is the straggler") for note in reading.notes)


def test_processes_side_by_side_are_one_job() -> None:
    """One process a GPU without a process group: children of the same parent, at the same time."""
    reading = read(process(3, 10.0), process(4, 12.0, start=102.0))
    assert reading.units_per_s == 22.0
    assert (reading.ranks, reading.effects.group_size) == (2, 1)


def test_processes_without_a_group_do_not_wait_for_each_other() -> None:
    """They are no ranks, have no numbers, and none of them is a straggler."""

    def each(n: int, **other: int) -> ProcessRecord:
        share = {"backward_share": n / 10}
        return process(n, 10.0, measured=share, arguments={"num_workers": 2}, cpus=2, **other)

    reading = read(each(3), each(4))
    assert reading.notes == ("4 loader workers, 2 in each of 2 processes, on 2 CPUs",)
    reading = read(each(3, rank=0, world_size=2), each(4, rank=1, world_size=2))
    assert reading.effects.group_size == 2
    assert any("straggler" in note for note in reading.notes)


def test_the_parts_of_one_process_are_no_ceilings_of_several() -> None:
    """What one of them does alone is not what all do together, nor do they measure it at once."""
    ceilings = {"compute_units_per_s": 15.0, "loader": [{"workers": 0, "units_per_s": 90.0}]}
    alone = ceilings | {"notes": ["loader alone with 2 workers: only 0 batches"]}
    one = read(process(3, 10.0, ceilings=alone))
    assert one.ceilings is not None
    assert one.ceilings.compute_units_per_s == 15.0
    both = read(process(3, 10.0, ceilings=alone), process(4, 12.0, ceilings=alone))
    assert both.ceilings is None
    assert not any("loader alone" in note for note in both.notes)
    assert any(note.startswith("no ceiling of a part is told") for note in both.notes)


def test_parts_of_a_script_are_not() -> None:
    """One after the other: training speaks, and a note tells of the rest."""
    before = process(3, 500.0, start=50.0, measured={"kind": "loader batch"})
    reading = read(before, process(4, 12.0))
    assert reading.units_per_s == 12.0
    assert "1 other process" in reading.notes[0]


def test_autocast_inside_the_forward_is_seen() -> None:
    """The leaves computed in another dtype than the model's own."""
    seen = {"model_dtype": "float32", "compute_dtype": "bfloat16", "autocast_dtype": None}
    reading = read(process(3, 1.0, flags=seen))
    assert reading.effects.dtype == reading.effects.autocast_dtype == "bfloat16"


def test_batches_that_were_asked_for_and_not_finished_are_noted() -> None:
    reading = read(process(3, 1.0), whole_batches=12)
    assert reading.notes == ("10 batches were finished to the end, 12 were asked for",)
