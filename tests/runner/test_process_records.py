"""What a program leaves where the probe's records lie is untrusted: run it raises nothing."""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from advisor.analysis.measurement import Measurement
from advisor.history import History
from advisor.model import MeasurePlan
from advisor.probe.record import VERSION
from advisor.runner.measured_run import probed_run
from advisor.runner.process_records import LARGEST_BYTES, Records, parse
from tests.runner.by_hand import content, run
from tests.runner.conftest import failed, measured

if TYPE_CHECKING:
    from pathlib import Path

    from tests.runner.conftest import MakeTrial

WHOLE = MeasurePlan(mode="whole")


def of(**fields: Any) -> dict[str, Any]:
    return {"version": VERSION, "pid": 7, "state": "stepping", "steps": 3, **fields}


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
        json.dumps({"version": VERSION - 1, "state": "stopped"}).encode(),
        json.dumps({"version": "9" * 1000}).encode(),
    ],
)
def test_what_is_no_record_of_this_version_says_why(data: bytes) -> None:
    """Cut short, hostile, or of another version: a process that booted, with the reason."""
    found = parse(7, data)
    assert found.unread
    assert (found.pid, found.state, found.measurement.run) == (7, "booted", None)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"losses": ["x"]}, "losses"),
        ({"memory": {"rss_gib": "many"}}, "memory"),
        ({"last_step_time": "NaN"}, "last_step_time"),
        ({"writes": {"a": 1}, "rank": "first"}, "rank"),
    ],
)
def test_what_is_wrong_in_a_record_is_left_out_and_named(wrong: dict[str, Any], named: str) -> None:
    """The rest of it counts: one odd field costs no more than itself."""
    found = parse(7, json.dumps(of(**wrong)).encode())
    assert found.unread
    assert named in found.unread
    assert (found.state, found.steps) == ("stepping", 3)


def test_a_record_says_nothing_of_its_measurement() -> None:
    """That comes from the event log alone; a loss may be no number at all."""
    claimed = content(7, measurement={"run": {"units_per_s": 1e9}}, losses=[1.0, math.inf])
    found = parse(7, json.dumps(claimed).encode())
    assert found.measurement.run is None
    assert (found.losses, found.unread) == ((1.0, math.inf), None)


def test_a_record_that_became_unreadable_stands_as_it_was(tmp_path: Path) -> None:
    """What was seen before is not forgotten, and the reason is told."""
    path = tmp_path / "7.json"
    path.write_text(json.dumps(of(steps=5)))
    records = Records(tmp_path)
    assert records.read()[0].steps == 5
    path.unlink()
    path.write_text("no record")
    (found,) = records.read()
    assert (found.steps, found.state) == (5, "stepping")
    assert found.unread
    assert records.read() == (found,)


def test_only_regular_files_of_a_sane_size_are_opened(tmp_path: Path) -> None:
    """A pipe would never end, a link may lead anywhere, and a disk image is no record."""
    os.mkfifo(tmp_path / "1.json")
    os.mkfifo(tmp_path / "stacks-1.txt")
    (tmp_path / "2.json").symlink_to("/dev/zero")
    (tmp_path / "3.json").mkdir()
    with (tmp_path / "4.json").open("wb") as large:
        large.truncate(LARGEST_BYTES + 1)
    (tmp_path / "99999999999999999999.json").write_text("{}")
    (tmp_path / "boot-5.json").write_text('{"time": "soon"}')
    (tmp_path / "boot-x.json").write_text("{}")
    records = Records(tmp_path)
    assert [found.pid for found in records.read()] == [1, 2, 3, 4, 5]
    assert all(found.unread for found in records.read()[:4])
    assert records.stacks() == {}


OVERWRITES = """\
import json, os, pathlib
records = pathlib.Path(os.environ["GPU_ADVISOR_SPEC"]).parent / "probe"
(records / f"{os.getpid() + 1}.json").write_text(%r)
"""


def test_a_hostile_record_never_raises_out_of_a_trial(make_trial: MakeTrial) -> None:
    """It is a failure of its own kind, which says what could not be read."""
    outcome = failed(make_trial(sys.executable, "-c", OVERWRITES % "{"))
    assert outcome.kind == "probe-not-loaded"
    assert "could not be read" in outcome.evidence


def test_a_file_whose_name_is_no_text_costs_no_record(
    make_trial: MakeTrial, tmp_path: Path
) -> None:
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
    "ceilings": {"loader": [{"workers": 1, "units_per_s": 3.0}]},
    "whatif": {"name": "x", "applied": True},
    "arguments": {"a": 1},
}


@pytest.mark.parametrize("name", [*content(7), *FULL])
def test_whatever_stands_in_a_record_it_becomes_a_run_or_none(name: str) -> None:
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
        found = probed_run(records, MeasurePlan(whole_batches=3))
        assert found is None or math.isfinite(found.units_per_s)
