"""Results by item: what a batch leaves out or changes is told, rounding and chance are not."""

import re
from dataclasses import replace

import pytest

from advisor import numbers
from advisor.model import Effects, ResultFile, Run
from advisor.tuner import output_check
from tests.report.composing import reported
from tests.runs import a_run
from tests.support.simulator.search import formula_search, on_formula


def run(*files: ResultFile, units: float = 1000.0, step_kind: str = "loader batch") -> Run:
    """One that finished so many units and left `files`."""
    return a_run(units=units, whole_units=units, step_kind=step_kind, results=files)


def lines(items: int, *first: tuple[float | str, ...], path: str = "preds.jsonl") -> ResultFile:
    return ResultFile(path=path, items=items, size_bytes=100 * items, first=first)


def tells(sentence: str, said: str | None) -> bool:
    """Whether the sentence holds `said`, or is empty for None."""
    return not sentence if said is None else said in sentence


def test_samples_that_the_loader_drops_are_lost_results() -> None:
    """50 of them: batches of 2 use all, and batches of 4 leave two without a result."""
    every, fewer = (
        replace(run(), effects=Effects(batch=batch, left_out=left_out))
        for batch, left_out in ((2, 0), (4, 2))
    )
    lost = output_check.output_regression([every], fewer)
    assert (
        lost
        == "In batches of 4 the loader drops 2 samples of a pass (drop_last), where it dropped 0."
    )
    assert output_check.output_regression([fewer], every) == ""


HALF = ((0.5, "a"), (0.25, "b"))


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (run(lines(4000, *HALF), units=4000), None),
        (run(lines(3900, *HALF), units=4000), None),  # the rest lies in a buffer
        (run(lines(500, *HALF), units=4000), "as much work left"),
        (run(lines(4000, (0.5004, "a"), (0.2501, "b")), units=4000), None),
        (run(lines(4000, (0.5, "a"), (0.75, "b")), units=4000), "by more than rounding"),
        (run(lines(4000, (0.5, "a"), (0.25, "c")), units=4000), "by more than rounding"),
        (run(lines(4000, (0.5, "a", 1.0)), units=4000), "by more than rounding"),
        (run(lines(500, (9.0, "z")), units=4000, step_kind="optimizer step"), None),
        (run(units=4000), None),
        (run(lines(4000, *HALF, path="preds_1203.jsonl"), units=4000), None),
        (run(lines(500, *HALF, path="preds_1203.jsonl"), units=4000), "as much work left"),
    ],
)
def test_fewer_or_other_items_stop_the_search(after, said) -> None:
    """By as many finished units as the candidate has; a training's files are no results."""
    before = run(lines(1000, *HALF))
    assert tells(output_check.output_regression((before, before), after), said)


def test_what_two_originals_do_not_agree_on_tells_nothing() -> None:
    """A program that draws its results at random, or writes times into them."""
    one, other = run(lines(1000, (0.1, "a"))), run(lines(1000, (0.9, "b")))
    after = run(lines(1000, (0.4, "c")))
    assert output_check.output_regression((one, other), after) == ""
    assert output_check.output_regression((one,), after) == ""
    assert "by more than rounding" in output_check.output_regression((one, one), after)


def picture(*means: float, size: str = "9x9", path: str = "out/1.png") -> ResultFile:
    return ResultFile(path=path, items=1, size_bytes=900, first=((size, *means),), sampled=True)


GREY = (0.5,) * 64


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (picture(*GREY), None),
        (picture(*(0.5004,) * 64), None),
        (picture(*(0.6, *GREY[1:])), None),  # an edge that was cut by a threshold
        (picture(*(0.6,) * 4, *GREY[4:]), "by more than rounding"),
        (picture(*GREY, size="9x10"), "by more than rounding"),
        (picture(*(0.4,) * 64, path="out/2.png"), None),
    ],
)
def test_pictures_are_compared_by_what_they_show(after, said) -> None:
    """Means of fields, but for rounding; a picture of another name is another picture."""
    before, other = run(picture(*GREY)), picture(*GREY, path="out/0.png")
    assert tells(output_check.output_regression((before, before), run(after, other)), said)


def test_a_file_that_does_not_grow_with_the_work_lacks_no_items() -> None:
    """One picture an item, or an array of a few rows: eight times the work is not eight times the
    content of each."""
    before = run(picture(*GREY), units=100)
    assert output_check.output_regression((before, before), run(picture(*GREY), units=800)) == ""
    each = replace(run(lines(3, path="1.npy"), units=4), files_in_window=4)
    more = replace(run(lines(3, path="1.npy"), units=16), files_in_window=16)
    assert output_check.output_regression((each, each), more) == ""


def test_a_file_of_each_pass_loses_nothing() -> None:
    """It may be begun anew with each pass over the data: few entries are no lost ones."""
    before, fewer = run(lines(1000)), run(lines(500), units=4000)
    for items, lost in ((None, True), (10_000, True), (2000, False)):
        after = replace(fewer, effects=replace(fewer.effects, data_items=items))
        assert bool(output_check.output_regression((before,), after)) is lost


@pytest.mark.parametrize(("files_each", "said"), [(1.0, None), (1 / 64, "results would be lost")])
def test_what_was_finished_before_the_window_left_its_files_there(files_each, said) -> None:
    """Six batches warm up: of a large batch, on a slow day, that is twice what the window holds."""
    before = a_run(units=64, whole_units=70, files_in_window=64)
    after = a_run(units=192, whole_units=576, files_in_window=round(192 * files_each))
    assert tells(output_check.output_regression((before, before), after), said)


def test_what_cannot_be_read_is_told_where_it_was_the_same_before() -> None:
    """Bit for bit in each of the originals; a format that is never the same tells nothing."""

    def jpeg(digest: str) -> Run:
        return run(ResultFile(path="1.jpg", items=1, size_bytes=9, digest=digest))

    assert output_check.unread((jpeg("a"), jpeg("a")), [jpeg("a"), jpeg("b")]) == ("1.jpg",)
    assert output_check.unread((jpeg("a"), jpeg("a")), [jpeg("a")]) == ()
    assert output_check.unread((jpeg("c"), jpeg("a")), [jpeg("b")]) == ()
    assert output_check.unread((jpeg("a"),), [jpeg("b")]) == ()
    assert output_check.output_regression((jpeg("a"), jpeg("a")), jpeg("b")) == ""


@pytest.mark.parametrize(("files", "taken"), [(lambda batch: batch, True), (lambda _: 1, False)])
def test_a_batch_that_loses_results_is_not_taken(files, taken, tmp_path) -> None:
    """One file a batch where there was one an item: said with both counts, and not written."""
    engine = on_formula(load_s=1e-6, files=files, noise=0.08)
    search = formula_search(tmp_path, engine, "batch_size: 1\n", workload={"phase": "test"})
    assert ("batch_size" in search.values) is taken
    if not taken:
        assert "results would be lost" in search.decisions["batch_size"].reason
        report = reported(search, tmp_path)
        assert {each.cause for each in report.left_out} == {"other-results"}
        told = re.fullmatch(
            r"(batch \d+) was faster \((.*x) in one run\) and was not taken: .* lost.",
            report.reason,
        )
        assert told is not None, report.reason
        rates = {each.label: each.units_per_s for each in report.trials}
        ratio = rates[told[1]] / report.before.units_per_s
        assert told[2] == numbers.ratio(ratio), "as its table has it, and its list of what is left"
        assert told[2] in {numbers.ratio(each.ratio) for each in report.left_out}
