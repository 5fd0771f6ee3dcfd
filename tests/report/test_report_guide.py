"""What a reader does next: neighbours, times, signs and troubles, all of it from the report."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from advisor.executor.requests import TrialRequest, TrialResult, Variant
from advisor.model import MeasurePlan
from advisor.report import guide, numbers, rendering, sensitivity, view
from advisor.report.entries import trial_entry
from advisor.report.model import Side, TrialEntry
from tests.report import examples
from tests.report.entries import decision
from tests.report.reading import section
from tests.runs import a_run

if TYPE_CHECKING:
    from pathlib import Path

WORKERS = "datasets.test.dataloader.args.num_workers"
BATCH = "datasets.test.dataloader.args.batch_size"
STEPS = "model.beta_schedule.test.n_timestep"


def rows(report: Any) -> dict[tuple[str, object], sensitivity.Neighbour]:
    return {(each.path, each.value): each for each in sensitivity.neighbours(report)}


def test_neighbours_are_one_step_to_either_side_with_all_else_equal() -> None:
    """Of many values that ran, the nearest below and above; rates of the same purpose."""
    found = rows(examples.improved())
    assert {value for path, value in found if path == BATCH} == {4, 16}
    lower = found[BATCH, 4]
    assert lower.ratio == pytest.approx(0.701 / 0.722)
    assert (lower.runs, lower.chosen_runs, lower.peak_mem_gib) == (1, 1, 0.45)
    assert dict(lower.others) == {STEPS: 1000}, "the batch was searched before the steps moved"
    assert {value for path, value in found if path == WORKERS} == {0, 2}
    assert found[WORKERS, 2].ratio == pytest.approx(0.571 / 0.583)


def test_a_knob_that_moves_with_another_is_no_knob_of_its_own() -> None:
    """The end of the schedule goes with the steps: one row, for the steps."""
    found = rows(examples.improved())
    assert [path for path, _ in found if "schedule" in path] == [STEPS]
    assert found[STEPS, 1000].others == ()


def test_a_neighbour_that_failed_is_told_by_its_failure() -> None:
    trials = [t for t in examples.improved().trials if t.label != "num_workers=1 batch_size=16"]
    near = rows(examples.improved(trials=trials))[BATCH, 32]
    assert (near.units_per_s, near.ratio, near.outcome) == (None, None, "host-oom")
    body = section(rendering.render(examples.improved(trials=trials)), "One step")
    assert "| `32` | host-oom |" in body


def test_disturbed_and_repeated_runs_are_no_neighbours_beside_quiet_ones() -> None:
    calm = examples.improved()
    (row,) = [t for t in calm.trials if t.label == "num_workers=1 batch_size=4"]
    noisy = [
        row.model_copy(update={"id": "x1", "units_per_s": 0.1, "disturbed": True}),
        row.model_copy(update={"id": "x2", "units_per_s": 0.1, "repeated": True}),
    ]
    found = rows(examples.improved(trials=[*calm.trials, *noisy]))
    assert found[BATCH, 4].units_per_s == pytest.approx(0.701)


def test_what_was_proven_for_a_tier_is_a_neighbour_where_the_search_left_it_out() -> None:
    """And beside the search's own run of it, that run counts: its neighbours ran at its time."""
    calm = examples.improved()
    (row,) = [t for t in calm.trials if t.label == "num_workers=1 batch_size=4"]
    pairs = row.model_copy(update={"id": "x1", "units_per_s": 0.9, "purpose": "tier"})
    alone = [t for t in calm.trials if t is not row] + [pairs]
    assert rows(examples.improved(trials=alone))[BATCH, 4].units_per_s == pytest.approx(0.9)
    both = rows(examples.improved(trials=[*calm.trials, pairs]))
    assert both[BATCH, 4].units_per_s == pytest.approx(0.701)


def test_what_was_not_kept_gives_no_neighbours() -> None:
    """A report of an earlier version holds no settings of its trials."""
    old = [t.model_copy(update={"settings": None}) for t in examples.improved().trials]
    report = examples.improved(trials=old)
    assert sensitivity.neighbours(report) == []
    assert "One step" not in rendering.render(report)


def test_a_knob_that_the_program_ignores_has_no_neighbours() -> None:
    """Whatever two runs differ by, it is not by that knob."""
    rates = ((1.0, {}), (0.9, {"sample_num": 6}))
    trials = [
        TrialEntry(
            id=f"t{rate}",
            purpose="effects",
            label="",
            outcome="ok",
            units_per_s=rate,
            settings=settings,
        )
        for rate, settings in rates
    ]
    for outcome, expected in (("ignored", set()), ("kept", {6})):
        knob = decision("sample_num", "item_count", outcome, 12, 12)
        report = examples.unchanged(trials=trials, decisions=[knob])
        assert {each.value for each in sensitivity.neighbours(report)} == expected


def test_settings_that_are_no_numbers_have_every_other_value_as_neighbour() -> None:
    path = "precision"
    trials = [
        TrialEntry(
            id=f"t{value}",
            purpose="search",
            label=f"precision={value}",
            outcome="ok",
            units_per_s=rate,
            settings={} if value == "fp32" else {path: value},
        )
        for value, rate in (("fp32", 1.0), ("bf16", 2.0), ("fp16", 1.9))
    ]
    kept = decision(path, "precision", "kept", "fp32", "fp32")
    report = examples.unchanged(trials=trials, decisions=[kept])
    assert {each.value: each.ratio for each in sensitivity.neighbours(report)} == {
        "bf16": 2.0,
        "fp16": 1.9,
    }


def test_times_follow_from_the_measured_rates_and_their_bounds() -> None:
    """Start-up and work; a pass over the data set where the loader tells how large it is."""
    report = examples.improved()
    after = report.after.model_copy(update={"data_items": 2_000})
    before = report.before.model_copy(update={"data_items": 2_000})
    found = {
        row.label: row for row in guide.timeline(examples.improved(before=before, after=after))
    }
    seconds = [1000 / rate + 3.1 for rate in (1.487, 1.522, 1.452)]
    middle, low, high = map(numbers.duration, seconds)
    assert found["1,000 tiles"].after == f"{middle} ({low} to {high})"
    for passes, label in ((1, "1 pass over 2,000 tiles"), (10, "10 passes over 2,000 tiles")):
        middle = numbers.duration(passes * 2_000 / 0.511 + 6.2)
        assert found[label].before.startswith(f"{middle} (")
    assert "pass" not in "".join(row.label for row in guide.timeline(report))


def test_signs_name_only_what_was_measured() -> None:
    """A rate with its bounds and nothing else is one sign; the rate of one process is none."""
    bare = Side(units_per_s=2.0, units_per_s_low=1.9, units_per_s_high=2.1)
    found = guide.signs(examples.unchanged(before=bare, after=bare, noise_band=None))
    assert [(sign.label, sign.good, sign.bad) for sign in found] == [
        ("tiles/s", "2.00 (1.90 to 2.10)", "below 1.84")
    ]
    once = Side(units_per_s=2.0, wait_share=0.1, peak_mem_gib=1.0)
    for side in (once, Side()):
        assert guide.signs(examples.unchanged(before=side, after=side)) == []
    report = examples.unchanged(before=once, after=once)
    assert "no range is known" in section(rendering.render(report), "How long it takes")


def test_signs_and_commands_are_those_of_the_machine() -> None:
    on_gpu, on_cpu = examples.on_gpu(), examples.improved()
    assert {sign.label for sign in guide.signs(on_gpu)} >= {"GPU utilisation", "samples/s"}
    assert {sign.label for sign in guide.signs(on_cpu)} >= {"CPU utilisation", "tiles/s"}
    assert any("nvidia-smi" in watch.command for watch in guide.watching(on_gpu))
    assert not any("nvidia-smi" in watch.command for watch in guide.watching(on_cpu))


def test_troubles_begin_with_what_failed_here() -> None:
    """The kind, the setting with which it came, and what to do; a quiet run has none of it."""
    first = guide.troubles(examples.on_gpu())[0]
    assert first.when == "gpu-oom, as with `num_workers=8 batch_size=256` here"
    assert "batch size" in first.then
    calm = [t for t in examples.on_gpu().trials if t.outcome == "ok"]
    told = " ".join(each.when for each in guide.troubles(examples.on_gpu(trials=calm)))
    assert "gpu-oom" not in told


def test_what_the_largest_batch_took_is_the_most_that_it_took() -> None:
    """It ran with fewer workers, too, and took less."""
    calm = examples.improved()
    largest = max((t for t in calm.trials if t.peak_mem_gib), key=lambda t: t.batch)
    less = largest.model_copy(update={"peak_mem_gib": 0.3})
    for trials in ([less, *calm.trials], [*calm.trials, less]):
        told = " ".join(each.then for each in guide.troubles(examples.improved(trials=trials)))
        assert f"A batch of 16 took {numbers.gib(largest.peak_mem_gib)} here" in told


def test_a_command_that_is_no_shell_text_is_watched_by_other_means() -> None:
    report = examples.improved(command="python 'train.py")
    assert not any(watch.command.startswith("top") for watch in guide.watching(report))


@examples.every_example
def test_no_section_is_empty(make: Any) -> None:
    """A heading has something below it, and a table has rows."""
    text = rendering.render(make(), "figures")
    for body in re.split(r"^## .*$", text, flags=re.MULTILINE)[1:]:
        assert body.strip()
    assert not re.search(r"^\|[-:| ]+\|\n(?!\|)", text, re.MULTILINE)


def test_parts_of_a_units_time_have_a_heading_without_a_bottleneck() -> None:
    """One run names no bottleneck; its parts are a table of their own, not rows of another."""
    once = Side(units_per_s=2.0, shares={"data_wait": 0.1, "compute": 0.9})
    report = examples.unchanged(before=once, after=once, bottleneck_before=None)
    assert "| compute |" in section(rendering.render(report), "Where the time goes")


def test_a_dry_run_changed_nothing_that_runs_now() -> None:
    """Nothing was written, so no sentence says with what it runs from now on."""
    dry = examples.improved(dry_run=True, written=None, how_to_revert="")
    (told,) = [each.then for each in guide.troubles(dry) if each.when == "it runs out of memory"]
    assert "now runs" not in told
    (told,) = [
        each.then
        for each in guide.troubles(examples.improved())
        if each.when == "it runs out of memory"
    ]
    assert "it now runs with 8" in told


def test_times_of_both_tables_count_the_start_up_alike() -> None:
    """Where one side does not tell its start-up, neither table adds it to the other."""
    calm = examples.improved()
    report = examples.improved(after=calm.after.model_copy(update={"startup_s": None}))
    first = {row.label: row for row in view.measures(report)}["1,000 tiles (estimate)"]
    below = {row.label: row for row in guide.timeline(report)}["1,000 tiles"]
    assert below.before.startswith(f"{first.before} (")
    assert below.after.startswith(f"{first.after} (")


def test_how_to_watch_it_is_told_without_a_range_to_watch_for() -> None:
    """A run that was cut short has no signs yet; its commands are the same."""
    body = section(rendering.render(examples.partial()), "Watching it run")
    assert "gpu-advisor doctor" in body
    assert "| sign |" not in body


def test_a_training_has_its_times_for_two_sizes_of_its_data() -> None:
    """What was run on, and ten times as many items at the same rate; of inference one size."""
    calm = examples.on_gpu()
    sides = {
        name: getattr(calm, name).model_copy(update={"data_items": 12_000})
        for name in ("before", "after")
    }
    found = {row.label: row for row in guide.timeline(examples.on_gpu(phase="train", **sides))}
    larger = found["10 passes over 120,000 samples, ten times the data"]
    assert larger.after.startswith(numbers.duration(10 * 120_000 / 1382.0 + 12.4))
    assert "10 passes over 12,000 samples" in found
    told = [row.label for row in guide.timeline(examples.on_gpu(phase="test", **sides))]
    assert not any("ten times" in label for label in told)


@pytest.mark.skipif(not (shutil.which("top") and shutil.which("pgrep")), reason="needs procps")
def test_a_program_of_many_workers_can_be_watched(tmp_path: Path) -> None:
    """`top` takes twenty processes; and a name is no pattern."""
    script = tmp_path / "train+[1].py"
    script.write_text("import time\ntime.sleep(60)\n")
    crowd = [subprocess.Popen([sys.executable, str(script)]) for _ in range(22)]
    try:
        report = examples.improved(command=f"{sys.executable} '{script}'")
        (watch,) = [each for each in guide.watching(report) if each.command.startswith("top")]
        once = watch.command.replace("top -d 5", "top -b -n 1")
        shown = subprocess.run(once, shell=True, capture_output=True, text=True, check=False)
        assert shown.returncode == 0, shown.stderr
        assert str(crowd[0].pid) in shown.stdout
    finally:
        for each in crowd:
            each.kill()
            each.wait()


def test_what_failed_inside_a_trial_alone_is_no_trouble_of_a_user() -> None:
    """Nobody runs a what-if by hand: only what a config or a command holds can go wrong there."""

    def failed(label: str, whatif: str | None) -> TrialEntry:
        return TrialEntry(
            id="9", purpose="whatif", label=label, outcome="crash-step", whatif=whatif
        )

    inside = failed("original, what if channels_last", "channels_last")
    whens = [each.when for each in guide.troubles(examples.unchanged(trials=[inside]))]
    assert not any("crash-step" in when for when in whens)
    both = examples.unchanged(trials=[inside, failed("batch_size=64", None)])
    whens = [each.when for each in guide.troubles(both)]
    assert "crash-step, as with `batch_size=64` here" in whens


def test_a_trial_tells_what_was_tried_from_inside_it() -> None:
    for arm, turns, told in (
        (Variant(), (), None),
        (Variant(whatif="compile"), (), "compile"),
        (Variant(), ("compile", "threads=1"), "compile, threads=1"),
    ):
        request = TrialRequest(variant=arm, purpose="whatif", plan=MeasurePlan(in_turn=turns))
        assert (
            trial_entry(
                TrialResult(id="1", request=request, result=a_run(), remaining_s=1.0)
            ).whatif
            == told
        )


def test_a_sign_begins_where_the_search_saw_a_difference() -> None:
    """The noise is told once, and beside another number of its own for ties."""
    noisy = examples.unchanged(noise_band=2.45, tie=0.15)
    side = noisy.before
    assert side.units_per_s_low is not None
    (rate,) = [sign for sign in guide.signs(noisy) if sign.label.endswith("/s")]
    assert rate.bad == f"below {numbers.number(side.units_per_s_low / 1.15)}"
    machine = section(rendering.render(noisy), "The machine")
    told = "245 % between equal runs; the search called rates within 15 % a tie, never more"
    assert f"| noise band | {told} |" in machine
    calm = section(rendering.render(examples.unchanged(noise_band=0.02, tie=0.03)), "The machine")
    assert "| noise band | 2.0 % between equal runs |" in calm
