"""Rows of forwards are items where each leaves a file, or an entry of one."""

import pytest

from advisor.model import Effects, ResultFile
from advisor.runner.measured_run import finished_by_results, unfinished_note
from tests.runs import a_run

ROW = "row of a forward"


@pytest.mark.parametrize(
    ("files", "entries", "counted"),
    [
        (100, 0, "written item"),
        (85, 0, "written item"),
        (2, 0, ROW),
        (None, 0, ROW),
        (0, 400, "written item"),
        (0, 300, ROW),
    ],
    ids=["a file each", "some on their way", "a file for fifty", "unknown", "entries", "few"],
)
def test_rows_that_leave_a_result_each_are_items(files, entries, counted) -> None:
    """A sampler's or a generation's rows leave fewer, and padded ones none."""
    note = unfinished_note(ROW)
    run = a_run(
        unit=ROW,
        counted=ROW,
        units=100.0,
        whole_units=400.0,
        files_in_window=files,
        results=(ResultFile(path="out.jsonl", items=entries, size_bytes=9),),
        effects=Effects(batch=4.0),
        notes=("another", note),
    )
    found = finished_by_results(run, "image")
    assert found.counted == counted
    assert found.unit == ("image" if counted == "written item" else ROW)
    assert (note in found.notes) is (counted == ROW)
