"""Records of processes: untrusted, and together one run."""

import json
import math
import os
import sys
from dataclasses import replace
from typing import Any

import pytest

from advisor.analysis.events import LoaderFacts, ModuleFacts
from advisor.analysis.measurement import NO_RUN, Measurement, effects_of
from advisor.history import History
from advisor.model import MeasurePlan, Run, Shares, Straggler
from advisor.probe.recorder import VERSION
from advisor.runner.measured_run import joined, probed_run
from advisor.runner.process_records import LARGEST_BYTES, ProcessRecord, Records, parse
from tests.runner.conftest import failed, measured


def content(pid: int, **other: Any) -> dict[str, Any]:
    """A record of a process that trained for ten seconds, as it stands in its file."""
    start = other.pop("start", 100.0)
    return {
        "version": VERSION, "pid": pid, "ppid": 1, "boot_time": start - 5, "state": "stopped",
        "steps": 10, "rank": 0, "world_size": 1,
        "last_step_time": start + 10, "errors": [], "notes": [],
        "swallowed": [], "writes": [],
        "losses": [3.0, 2.0], "memory": {"allocated_gib": 1.5}, **other,
    }  # fmt: skip


def run(rate: float, start: float = 100.0, **measured: Any) -> Run:
    """Run of ten seconds of training."""
    found = replace(
        NO_RUN,
        step_kind="optimizer step",
        rate_source="by hand",
        units_per_s=rate,
        window_start=start,
        window_end=start + 10,
        units=10 * rate,
        windows=(rate, rate),
        step_ms=1000.0,
        wait_share=0.25,
        shares=Shares(data_wait=0.25, other=0.75),
        whole_units=rate * 10,
    )
    return replace(found, **measured)


def process(
    pid: int,
    rate: float | None,
    *,
    measured: dict[str, Any] | None = None,
    flags: dict[str, Any] | None = None,
    **other: Any,
) -> ProcessRecord:
    """A process that trained at `rate`; None: it made no steps."""
    start = other.get("start", 100.0)
    record = parse(pid, json.dumps(content(pid, **other)).encode())
    effects = effects_of(LoaderFacts(iterated=True), ModuleFacts(flags=flags or {}))
    alone = None
    if rate is not None:
        alone = run(rate, start, effects=effects, **(measured or {}))
    found = Measurement(run=alone, first_step=start)
    return replace(record, measurement=found)


BOOTED = ProcessRecord(pid=6, boot_time=90.0)


def run_of(*processes: ProcessRecord) -> Run:
    found = probed_run([BOOTED, *processes])
    assert found is not None
    return found


def with_batch(record: ProcessRecord, batch: float) -> ProcessRecord:
    """The same process, which saw batches of that size."""
    seen = replace(record.measurement.run.effects, batch=batch)
    run = replace(record.measurement.run, effects=seen)
    return replace(record, measurement=replace(record.measurement, run=run))


def test_a_process_without_a_figure_has_none_and_a_launcher_no_run() -> None:
    """What was not measured is None; a launcher makes no step."""
    run = run_of(process(7, 40.0), process(8, None))
    assert run.units_per_s == 40.0
    assert run.units == 400.0
    assert run.startup_s == 10.0
    assert run.peak_mem_gib == 1.5
    assert run.losses == (3.0, 2.0)
    assert run.ranks == 1
    assert run.notes == ()
    assert probed_run([BOOTED, process(7, None)]) is None


def test_ranks_add_up() -> None:
    """Rates are summed over ranks, in the order of rank; rank 0 speaks for the rest."""
    ranks = [process(9 - n, 10.0 + n, rank=n, world_size=3, ppid=n) for n in (0, 1, 2)]
    run = run_of(*(with_batch(rank, 8.0 * (1 + rank.rank)) for rank in ranks))
    assert run.effects.batch == 8.0
    assert run.effects.group_batch == 48.0
    assert run.rank_units_per_s == (10.0, 11.0, 12.0)
    assert run.units_per_s == 33.0
    assert run.windows == (33.0, 33.0)
    assert run.peak_mem_gib == 1.5
    assert run.effects.world_size == 3


def test_a_straggler_speaks_for_the_shares() -> None:
    """All steps last equally long; who does most outside of backward passes comes last."""

    def rank(number: int, backward: float, **shares: float) -> ProcessRecord:
        seen = {"backward_share": backward, "shares": Shares(**shares), "step_ms": 100.0}
        return process(9 - number, 10.0, measured=seen, rank=number, world_size=3, ppid=number)

    waits = {n: rank(n, 0.4, data_wait=0.2, compute=0.6, other=0.2) for n in (0, 2)}
    late = rank(1, 0.1, data_wait=0.5, compute=0.3, other=0.2)
    run = run_of(waits[0], late, waits[2])
    assert run.straggler == Straggler(rank=1, own_ms=90.0, others_ms=60.0, part="data_wait")
    assert run.shares.data_wait == 0.5
    assert run_of(waits[0], rank(1, 0.5, data_wait=0.2, compute=0.6), waits[2]).straggler is None
    assert run_of(waits[0], late).straggler is None, "what the third rank did is not known"


def test_a_straggler_on_cards_is_who_waits_least_for_the_exchange() -> None:
    """Hosts do not wait in their backward passes: the cards do, and that is timed."""

    def rank(number: int, **shares: float) -> ProcessRecord:
        seen = {"backward_share": 0.02, "shares": Shares(**shares), "step_ms": 100.0}
        return process(9 - number, 10.0, measured=seen, rank=number, world_size=2, ppid=number)

    waits = rank(0, compute=0.3, exchange=0.6, other=0.1)
    late = rank(1, compute=0.3, exchange=0.05, other=0.65)
    run = run_of(waits, late)
    assert run.straggler is not None
    assert run.straggler.rank == 1
    assert run.straggler.part == "other"
    assert (run.straggler.own_ms, run.straggler.others_ms) == pytest.approx((95.0, 40.0))
    alike = rank(1, compute=0.3, exchange=0.6, other=0.1)
    assert run_of(waits, alike).straggler is None


@pytest.mark.parametrize(("collectives", "batch"), [(None, 16.0), (10, 16.0), (4, None)])
def test_ranks_that_exchange_nothing_update_alone(collectives, batch) -> None:
    """A process group is there, and none of its calls at an update."""
    more = {"world_size": 2, "collectives": collectives}
    ranks = [process(n, 10.0, rank=n, ppid=n, **more) for n in (0, 1)]
    run = run_of(*(with_batch(rank, 8.0) for rank in ranks))
    assert run.ranks == 2
    assert run.effects.group_batch == batch


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
    ceilings = [{"workers": 0, "units_per_s": 90.0}]
    one = run_of(process(3, 10.0, ceilings=ceilings))
    assert one.ceilings[0].units_per_s == 90.0
    both = run_of(*(process(n, 10.0, ceilings=ceilings) for n in (3, 4)))
    assert both.units_per_s == 20.0
    assert both.ranks == 2
    assert both.effects.group_size == 1
    assert both.notes == ()
    assert both.ceilings == ()


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


def test_a_full_card_is_noted() -> None:
    (note,) = run_of(process(3, 1.0, memory={"alloc_retries": 2})).notes
    assert "tried again 2 times: the card is nearly full" in note


WHOLE = MeasurePlan(mode="whole")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe\0",
        b"null",
        b"[1, 2]",
        b"[" * 200_000,
        b'{"pid": 5, "sta',
        b'{"version": 1e999}',
        b'{"version": %d, "state": ' % VERSION,
        json.dumps({"version": VERSION - 1, "state": "stopped"}).encode(),
        json.dumps({"version": "9" * 1000}).encode(),
    ],
)
def test_what_is_no_record_of_this_version_says_why(data) -> None:
    """Cut short, hostile, or of another version: a process that booted, with the reason."""
    found = parse(7, data)
    assert found.unread
    assert found.pid == 7
    assert found.state == "booted"
    assert found.measurement.run is None


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"losses": ["x"]}, "losses"),
        ({"memory": {"allocated_gib": "many"}}, "memory"),
        ({"last_step_time": "NaN"}, "last_step_time"),
        ({"writes": {"a": 1}, "rank": "first"}, "rank"),
    ],
)
def test_what_is_wrong_in_a_record_is_left_out_and_named(wrong, named) -> None:
    """The rest of it counts: one odd field costs no more than itself."""
    found = parse(7, json.dumps(content(7, **wrong)).encode())
    assert found.unread
    assert named in found.unread
    assert found.state == "stopped"
    assert found.steps == 10


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"world_size": 10**400}, "world_size"),
        ({"world_size": 0}, "world_size"),
        ({"world_size": 1 << 40}, "world_size"),
        ({"last_step_time": 1e300}, "last_step_time"),
        ({"boot_time": -1.0}, "boot_time"),
        ({"steps": -3}, "steps"),
        ({"state": "flying"}, "state"),
        ({"memory": {"allocated_gib": 1e200}}, "memory"),
        ({"card": {"index": 0, "total_gib": math.inf}}, "card"),
        ({"ceilings": [{"workers": 0, "units_per_s": math.nan}]}, "ceilings"),
    ],
)
def test_numbers_of_a_record_are_bounded(wrong, named) -> None:
    """Once, where it is read: no sum or ratio of them overflows later."""
    found = parse(7, json.dumps(content(7, **wrong)).encode())
    assert found.unread
    assert named in found.unread
    assert found.losses == (3.0, 2.0)


@pytest.mark.parametrize("more", [{}, {"errors": []}, {"errors": [""]}, {"errors": ["a", "b\n"]}])
def test_a_probe_that_stepped_aside_needs_no_reason(make_trial, more) -> None:
    """Its record is the program's to write: without an error in it, the failure has none."""
    left = json.dumps({"version": VERSION, "state": "aside", **more})
    outcome = failed(make_trial(sys.executable, "-c", OVERWRITES % left))
    assert outcome.kind == "probe-not-loaded"


def test_a_window_of_no_length_is_no_run() -> None:
    """A clock that is far off rounds it away, as two moments become one."""
    far = process(3, 10.0, measured={"window_start": 1e11, "window_end": 1e11})
    assert probed_run([far]) is None


def test_a_record_says_nothing_of_its_measurement() -> None:
    """That comes from the event log alone; a loss may be no number at all."""
    claimed = content(7, measurement={"run": {"units_per_s": 1e9}}, losses=[1.0, math.inf])
    found = parse(7, json.dumps(claimed).encode())
    assert found.measurement.run is None
    assert found.losses == (1.0, math.inf)
    assert found.unread is None


def test_only_regular_files_of_a_sane_size_are_opened(tmp_path) -> None:
    """A pipe would never end, a link may lead anywhere, and a disk image is no record."""
    os.mkfifo(tmp_path / "1.json")
    os.mkfifo(tmp_path / "stacks-1.txt")
    (tmp_path / "2.json").symlink_to("/dev/zero")
    (tmp_path / "3.json").mkdir()
    with (tmp_path / "4.json").open("wb") as large:
        large.truncate(LARGEST_BYTES + 1)
    (tmp_path / "99999999999999999999.json").write_text("{}")
    (tmp_path / "5.json").write_text("soon")
    records = Records(tmp_path)
    assert [found.pid for found in records.read()] == [1, 2, 3, 4, 5]
    assert all(found.unread for found in records.read())
    assert records.stacks() == {}


OVERWRITES = """\
import json, os, pathlib
records = pathlib.Path(os.environ["GPU_ADVISOR_SPEC"]).parent / "probe"
(records / f"{os.getpid() + 1}.json").write_text(%r)
"""


def test_a_hostile_record_never_raises_out_of_a_trial(make_trial) -> None:
    """It is a failure of its own kind, which says what could not be read."""
    outcome = failed(make_trial(sys.executable, "-c", OVERWRITES % "{"))
    assert outcome.kind == "probe-not-loaded"
    assert "could not be read" in outcome.evidence


def test_a_file_whose_name_is_no_text_costs_no_record(make_trial, tmp_path) -> None:
    """Names are bytes on Linux, and JSON is text."""
    code = r"""open(b"od\xffd.txt", "w").close(); raise ValueError("\udcff")"""
    outcome = failed(make_trial(sys.executable, "-c", code))
    assert outcome.kind == "crash-start"
    assert "ValueError: ?" in outcome.evidence
    code = code.partition(";")[0].replace("od", "new")
    found = measured(make_trial(sys.executable, "-c", code, plan=WHOLE))
    assert found.files_created == ("new\ufffdd.txt",)
    history = History(tmp_path / "history.sqlite")
    history.append("key", "machine", found)
    assert history.find("key", "machine", max_age_s=60.0) == [found]


JUNK: tuple[Any, ...] = (
    None, True, -1, 1e308, float("nan"), 10**30, "", "x", "\0", [], [1], {}, {"a": [1]}, [[[]]],
    "9" * 50, [None], {"type": 1},
)  # fmt: skip
FULL: dict[str, Any] = {
    "exception": {"type": "X", "message": "m", "where": "step", "tail": "t"},
    "swallowed": [{"type": "A", "message": "b", "where": "forward"}],
    "ceilings": [{"workers": 1, "units_per_s": 3.0}],
    "overrides": [{"knob": "x", "applied": True}],
    "arguments": {"a": 1},
}


@pytest.mark.parametrize("name", [*content(7), *FULL])
def test_whatever_stands_in_a_record_it_becomes_a_run_or_none(name) -> None:
    """Junk in any field, and in what lies in it: nothing raises, and rates are finite."""
    whole: dict[str, Any] = content(7, **FULL)
    inside = whole[name]
    broken = [whole | {name: junk} for junk in JUNK]
    if isinstance(inside, dict):
        broken += [whole | {name: inside | {key: junk}} for key in inside for junk in JUNK]
    for each in broken:
        data = json.dumps(each).encode()
        read = [parse(7, data), parse(7, data[: len(data) // 2]), parse(8, data)]
        records = [replace(one, measurement=Measurement(run=run(4.0))) for one in read]
        assert all(isinstance(one.caught, tuple) for one in records)
        found = probed_run(records)
        assert found is None or math.isfinite(found.units_per_s)


@pytest.mark.parametrize(("on_each", "missing"), [((2, 2), False), ((1, 2), True)])
def test_ranks_that_no_node_measured_are_told_once_for_the_job(on_each, missing) -> None:
    """Each node remarks on the ranks of the others, which is no remark on the job."""
    runs = [
        run_of(*(process(10 + rank, 10.0, rank=rank, world_size=4) for rank in range(many)))
        for many in on_each
    ]
    notes = [note for note in joined(runs).notes if "ranks have a window" in note]
    assert notes == (["3 of 4 ranks have a window: the rate is 4 times their mean"] * missing)
