"""Figures of a report that disagree with each other: in report.json, and on the page beside it."""

import itertools
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from advisor.model.settings import SHORT_NAMES

Report = dict[str, Any]
ROUNDED = 0.01
"""Figures on a page have three digits."""
NUMBER = r"\d(?:[\d,]*\d)?(?:\.\d+)?(?:e-?\d+)?"
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
GIB = {"MiB": 1 / 1024, "GiB": 1.0}
STEP = re.compile(rf"One ([a-z ]+) took ({NUMBER} \w+) \(batch ({NUMBER})(?:, accumulation (\d+))?")
RATES = re.compile(rf"at ({NUMBER})(?: to ({NUMBER}))? [^,.]*/s in \d+ runs")
UNTRIED = re.compile("before (?:another value could run|it came to this setting)|^Not tried")
NVML_OFF = 0.05
"""NVML's figure is of samples of a whole run, ours of its window."""


def contradictions(report: Report, page: str) -> list[str]:
    """Each disagreement in one sentence; none of a page that is right."""
    return [f"{rule.__name__}: {found}" for rule in RULES for found in rule(report, page)]


def sides_of(report: Report) -> dict[str, Report]:
    """Columns of the page."""
    return {name: report[name] for name in ("before", "after")[: 1 + bool(report["changes"])]}


def number(text: str) -> float:
    """First number of a text. Raises ValueError without one."""
    found = re.search(NUMBER, text)
    if found is None:
        raise ValueError(text)
    return float(found[0].replace(",", ""))


def amount(text: str, units: dict[str, float]) -> float:
    """`2 h 11 min`, `24.0 MiB` in the unit that counts 1. Raises ValueError without a unit."""
    parts = re.findall(rf"({NUMBER}) ({'|'.join(units)})\b", text)
    if not parts:
        raise ValueError(text)
    return sum(number(size) * units[unit] for size, unit in parts)


def near(one: float, other: float, share: float = ROUNDED) -> bool:
    return abs(one - other) <= share * max(abs(one), abs(other)) + 1e-9


def rows(page: str, first: str) -> Iterator[list[str]]:
    """Cells of the table whose head begins with `first`."""
    lines = iter(page.splitlines())
    for line in lines:
        if line.startswith(first):
            next(lines, "")
            for row in itertools.takewhile(lambda each: each.startswith("|"), lines):
                yield [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
            return


def a_rate_lies_within_its_bounds(report: Report, page: str) -> Iterator[str]:
    for name, side in sides_of(report).items():
        low, rate, high = (side[f"units_per_s{end}"] for end in ("_low", "", "_high"))
        if low is not None and not low * (1 - ROUNDED) <= rate <= high * (1 + ROUNDED):
            yield f"{name}: {rate:g}, of {low:g} to {high:g}"


def the_gain_is_after_over_before(report: Report, page: str) -> Iterator[str]:
    """Inside its bounds; a gain that has no size is no more than both rates show."""
    gain, rates = report["gain"], [side["units_per_s"] for side in sides_of(report).values()]
    if gain is None or len(rates) < 2 or None in rates or report["objective"] != "throughput":
        return
    ratio = rates[1] / rates[0]
    if gain["high"] is None:
        if gain["low"] > ratio * (1 + ROUNDED):
            yield f"more than {gain['low']:.3g}, and {rates[1]:g} over {rates[0]:g}"
        return
    if not near(gain["ratio"], min(max(ratio, gain["low"]), gain["high"])):
        yield f"{gain['ratio']:.3g}, and {rates[1]:g} over {rates[0]:g} is {ratio:.3g}"


def shares_sum_to_the_whole(report: Report, page: str) -> Iterator[str]:
    for name, side in sides_of(report).items():
        shares = side["shares"]
        if any(not -1e-9 <= share <= 1 + 1e-9 for share in shares.values()):
            yield f"{name}: {shares}"
        if "compute" in shares and abs(sum(shares.values()) - 1) > ROUNDED / 2:
            yield f"{name}: {sum(shares.values()):.3f}"


def a_card_computes_no_longer_than_nvml_saw_it(report: Report, page: str) -> Iterator[str]:
    for name, side in sides_of(report).items():
        util, computed = side["gpu_util_pct"], side["shares"].get("compute")
        by_events = "launch" in side["shares"]
        if util is not None and by_events and computed > util / 100 + NVML_OFF:
            yield f"{name}: {computed:.0%}, and NVML {util:.0f} %"


def memory_fits(report: Report, page: str) -> Iterator[str]:
    """Tensors into what the allocator held, and that into the card and into the search's limit."""
    cards = [gpu["memory_total_gib"] or 0.0 for gpu in report["machine"]["gpus"]]
    room = max(cards, default=0.0)
    for name, side in sides_of(report).items():
        held = side["gpu_mem_used_gib"]
        if held is None:
            continue
        if side["peak_mem_gib"] is not None and side["peak_mem_gib"] > held * (1 + ROUNDED):
            yield f"{name}: {side['peak_mem_gib']:.3g} GiB of tensors in {held:.3g} GiB"
        if room and held > room:
            yield f"{name}: {held:.3g} GiB on a card of {room:g}"
    held, limit = report["after"]["gpu_mem_used_gib"], report["memory_limit_gib"]
    if report["changes"] and held and limit and held > limit * (1 + ROUNDED):
        yield f"{held:.3g} GiB written, {limit:.3g} allowed"
    for part, whole in re.findall(
        rf"held (?:[^.;]* to )?({NUMBER} [MG]iB) of ({NUMBER} GiB)", page
    ):
        if amount(part, GIB) > amount(whole, GIB):
            yield f"{part} of {whole}"


def the_batch_written_is_the_batch_that_ran(report: Report, page: str) -> Iterator[str]:
    """Where the original's batch is the config's."""
    before, after = report["before"]["batch"], report["after"]["batch"]
    for change in report["changes"]:
        if change["kind"] == "batch_size" and before == change["old"] and after != change["new"]:
            yield f"{change['path']}: {change['new']} written, {after} ran"


def changes_stand_in_the_diff_and_the_bars(report: Report, page: str) -> Iterator[str]:
    diff = report["diff"].splitlines()
    for change in report["changes"]:
        old, new = (str(change[key]).strip('"') for key in ("old", "new"))
        words = f"{change['path']}: {old} to {new}"
        for sign, value in (("-", old), ("+", new)):
            lines = [line.lower() for line in diff if line.startswith(sign)]
            shown = any(value.lower() in line for line in lines)
            if diff and change["document"] == report["config"] and not shown:
                yield f"{words}, and no such line in the diff"
        if f"{old} to {new}" not in page and f"`{old}` | `{new}`" not in page:
            yield f"{words} is nowhere on the page"


def the_table_has_the_records_figures(report: Report, page: str) -> Iterator[str]:
    """Rates, times and ratios of the first table."""
    sides, table = list(sides_of(report).values()), list(rows(page, "|  | "))
    rates = [side["units_per_s"] for side in sides]
    for label, *cells in table:
        shown = [cell for cell in cells[: len(sides)] if re.match(NUMBER, cell)]
        if len(shown) < len(sides) or None in rates:
            continue
        alike = all(near(number(cell), rate) for cell, rate in zip(shown, rates, strict=True))
        if label.endswith("s/s") and not label.startswith("tokens") and not alike:
            yield f"{label}: {shown}, and {rates}"
        if label.startswith("time per 1,000"):
            for cell, rate in zip(shown, rates, strict=True):
                if not near(amount(cell, SECONDS), 1000 / rate, 2 * ROUNDED):
                    yield f"{label}: {cell}, at {rate:g} a second"
        ratio = re.match(r"([\d.,]+)x", cells[-1])
        if ratio and len(shown) == 2 and not label.endswith("s/s"):
            of_memory = any(unit in shown[0] for unit in GIB)
            first, last = (amount(each, GIB) if of_memory else number(each) for each in shown)
            if abs(last / first - number(ratio[1])) > max(0.006, 2 * ROUNDED * last / first):
                yield f"{label}: {shown} is no {ratio[0]}"


def the_headline_has_the_tables_gain(report: Report, page: str) -> Iterator[str]:
    gain = report["gain"]
    title = page.splitlines()[0]
    told = [number(each) for each in re.findall(rf"({NUMBER})x", title)]
    if gain and report["verdict"] == "improved" and told and report["objective"] == "throughput":
        wanted = gain["low"] if "more than" in title else gain["ratio"]
        if not any(near(each, wanted) for each in told):
            yield f"{title}, and the record has {wanted:.4g}"


def parts_of_a_unit_sum_to_it(report: Report, page: str) -> Iterator[str]:
    """Percents to 100, and each part's time is its percent of a unit's."""
    table = list(rows(page, "| part of "))
    for column, (name, side) in enumerate(sides_of(report).items(), 1):
        cells = [row[column] for row in table if row[column]]
        if not cells or not side["units_per_s"]:
            continue
        found = [re.fullmatch(rf"(.+) \(<?({NUMBER}) %\)", cell) for cell in cells]
        parts = [(amount(each[1], SECONDS), number(each[2]) / 100) for each in found if each
                 and each[1] != "0"]  # fmt: skip
        if not 0.93 <= sum(share for _, share in parts) <= 1.02:
            yield f"{name}: {cells}"
        for seconds, share in parts:
            off = abs(seconds * side["units_per_s"] - share)
            if off > 0.006 + ROUNDED * share:
                yield f"{name}: {seconds:g} s are {share:.1%} at {side['units_per_s']:g} a second"


def a_step_fits_its_rate(report: Report, page: str) -> Iterator[str]:
    """A batch over the time of its step is a rate that these runs had."""
    for side, bottleneck in (("before", "bottleneck_before"), ("after", "bottleneck_after")):
        said = report[bottleneck]
        if not said or not (rates := RATES.search(said["sentence"])):
            continue
        low, high = number(rates[1]), number(rates[2] or rates[1])
        for line in said["evidence"]:
            if not (step := STEP.match(line)):
                continue
            batch = number(step[3]) * int(step[4] or 1)
            per_unit = report[side]["forwards_per_unit"] if "forward" in step[1] else None
            rate = batch / (per_unit or 1.0) / amount(step[2], SECONDS)
            if not low * 0.85 <= rate <= high * 1.15:
                yield f"{line} That is {rate:.3g}/s, and the runs had {low:g} to {high:g}"


def parts_in_words_leave_room_for_each_other(report: Report, page: str) -> Iterator[str]:
    for said in (report["bottleneck_before"], report["bottleneck_after"]):
        text = (said or {}).get("sentence", "")
        ranges = {
            name: [number(each) / 100 for each in re.findall(rf"{NUMBER} %", found[1])]
            for name, pattern in (
                ("part", r" takes (?:at least )?([^,]*%) of the time"),
                ("computed", r"computed during at least ([^.]*(?:\.\d+[^.]*)*%)\."),
                ("nvml", r"at work in ([^.]*(?:\.\d+[^.]*)*%)\."),
            )
            if (found := re.search(pattern, text))
        }
        if {"part", "computed"} <= set(ranges) and (
            min(ranges["part"]) + min(ranges["computed"]) > 1.01
        ):
            yield text
        if {"computed", "nvml"} <= set(ranges) and (
            max(ranges["computed"]) > max(ranges["nvml"]) + NVML_OFF
        ):
            yield text


def trials_are_those_of_the_table(report: Report, page: str) -> Iterator[str]:
    """One row each; the side's rates are among those of its trials."""
    table = list(rows(page, "| trial | "))
    if len(table) != len(report["trials"]):
        yield f"{len(table)} rows of {len(report['trials'])} trials"
    own = sum(not trial["reused"] for trial in report["trials"])
    if table and own != report["runs"]:
        yield f"{own} trials, and {report['runs']} runs"
    for (trial_id, _, label, rate, *_), trial in zip(table, report["trials"], strict=False):
        if trial_id != trial["id"] or label.replace("\\", "") != trial["label"]:
            yield f"{trial_id} {label}, and {trial['id']} {trial['label']}"
        if trial["units_per_s"] and not near(number(rate), trial["units_per_s"]):
            yield f"{trial_id}: {rate}, and {trial['units_per_s']:g}"
    rates = [t["units_per_s"] for t in report["trials"] if t["label"] == "original"]
    rates, side = [rate for rate in rates if rate], report["before"]["units_per_s"]
    if rates and side and not min(rates) * 0.99 <= side <= max(rates) * 1.01:
        yield f"before is {side:g}, of trials at {min(rates):g} to {max(rates):g}"


def rounds_are_those_of_their_gain(report: Report, page: str) -> Iterator[str]:
    """The ratio of medians lies within the bounds."""
    for each in report["comparisons"]:
        counted = [one for one in each["rounds"] if one["counted"]]
        gain = each["gain"]
        if not gain or not counted or report["objective"] != "throughput":
            continue
        before, after = (statistics.median(one[arm] for one in counted)
                         for arm in ("before", "after"))  # fmt: skip
        high = gain["high"] or float("inf")
        if not gain["low"] * 0.99 <= after / before <= high * 1.01:
            yield f"{each['after']}: rounds {after / before:.3g}, told {gain}"


def what_was_not_tried_has_no_trial(report: Report, page: str) -> Iterator[str]:
    # a run that shows which settings the program follows is no try of a value
    tries = [trial for trial in report["trials"] if trial["purpose"] != "effects"]
    labels = [(trial["id"], trial["label"]) for trial in tries]
    for decision in report["decisions"]:
        never = decision["cause"] == "no-need" or UNTRIED.search(decision["reason"])
        leaf = decision["path"].rsplit(".", 1)[-1]
        word = SHORT_NAMES.get(leaf, leaf)
        ran = [name for name, label in labels if re.search(rf"(^|[ ·]){word} ", label)]
        same = [d for d in report["decisions"] if d["path"].rsplit(".", 1)[-1] == leaf]
        if never and ran and len(same) == 1:
            yield f"{decision['path']}: {decision['reason']} Trials {ran} had it."


def labels_ignored(report: Report) -> set[str]:
    """Labels of trials that ran as the original, since the program ignores what they set."""
    ignored = [d for d in report["decisions"] if d["outcome"] == "ignored"]
    trials = {trial for decision in ignored for trial in decision["trials"]}
    return {trial["label"] for trial in report["trials"] if trial["id"] in trials}


def what_is_ignored_is_no_best_candidate(report: Report, page: str) -> Iterator[str]:
    found = re.search("best candidate, (.+?), was", report["reason"])
    if found and found[1] in labels_ignored(report):
        yield found[0]


def batches_run_as_their_labels_say(report: Report, page: str) -> Iterator[str]:
    """But for a setting that the program ignores, as its decision says.

    Runs that judge quality are of few items, which may be less than a batch.
    """
    exempt = labels_ignored(report)
    whole = {d["old"] for d in report["decisions"] if d["kind"] == "batch_size"}
    for trial in report["trials"]:
        found = re.search(r"(?:^| )(?:batch|--batch[-_]size) (\d+)\b", trial["label"])
        if found is None or trial["outcome"] != "ok" or trial["batch"] is None:
            continue
        if trial["purpose"] == "quality":
            continue
        ran, asked = trial["batch"], int(found[1])
        if report["before"]["batch"] in whole and ran != asked and trial["label"] not in exempt:
            yield f"{trial['id']}: {trial['label']} ran at a batch of {ran:g}"


def energy_is_power_over_rate(report: Report, page: str) -> Iterator[str]:
    """Within a quarter: the driver averages power over a second."""
    limits = [gpu["power_limit_w"] for gpu in report["machine"]["gpus"]]
    for name, side in sides_of(report).items():
        energy, power = (side["figures"].get(key) for key in ("energy", "power"))
        rate = side["units_per_s"]
        if energy and power and rate and not near(energy * rate, power, 0.25):
            yield f"{name}: {energy:g} J at {rate:g} a second, and {power:g} W"
        if power and all(limits) and limits and power > sum(limits) * 1.05:
            yield f"{name}: {power:g} W on cards of {limits}"


RULES: Sequence[Callable[[Report, str], Iterator[str]]] = (
    a_rate_lies_within_its_bounds,
    the_gain_is_after_over_before,
    shares_sum_to_the_whole,
    a_card_computes_no_longer_than_nvml_saw_it,
    memory_fits,
    the_batch_written_is_the_batch_that_ran,
    changes_stand_in_the_diff_and_the_bars,
    the_table_has_the_records_figures,
    the_headline_has_the_tables_gain,
    parts_of_a_unit_sum_to_it,
    a_step_fits_its_rate,
    parts_in_words_leave_room_for_each_other,
    trials_are_those_of_the_table,
    rounds_are_those_of_their_gain,
    what_was_not_tried_has_no_trial,
    what_is_ignored_is_no_best_candidate,
    batches_run_as_their_labels_say,
    energy_is_power_over_rate,
)
