"""The words for what was decided: reasons and data in, sentences out. Nothing is decided here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from advisor import numbers
from advisor.executor.comparison import AFTER, BEFORE
from advisor.executor.startup_budget import WHOLE_SEARCH
from advisor.numbers import as_float
from advisor.objective import OBJECTIVES
from advisor.tuner.grid_settled import rule_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.executor.comparison import Comparison
    from advisor.executor.startup_budget import StartupBudget
    from advisor.knobs.confidence import Sureness
    from advisor.knobs.findings import Followed
    from advisor.model import Advice, BatchPlace, Decision, Interval
    from advisor.tuner.facts import Skipped

REASONS = {
    "changed-batch": "Part of what was proven; by the curve fitted to all runs the smallest batch "
    "within a tie of the fastest. {stopped}",
    "changed-loader": "Part of what was proven; by the curve fitted to all runs the smallest of "
    "the values that were as fast.",
    "changed-precision": "Part of what was proven, inside its guard{seen}.",
    "changed-memory-for-time": "Part of what was proven: nothing is computed twice any more, for "
    "the memory is there.",
    "changed-attention": "Part of what was proven, inside its guard{seen}.",
    "changed-flag": "Part of what was proven, inside its guard{seen}.",
    "changed-steps": "Part of what was proven, {held}{moved}. {stopped}",
    "changed-along": "Moves with what it is linked to.",
    "not-proven": "Not written: it looked faster, and the gain was not proven. {stopped}",
    "moved-the-quality": "Not written: it moved the declared quality out of its tolerance although "
    "such a setting should not change results.",
    "other-phase": "Belongs to the {phase} phase; what was measured here is {runs}.",
    "not-editable": "Left alone: {why}.",
    "never-by-itself": "Never tuned by itself: {never}.",
    "no-stage": "Nothing is tried here: no other value is known to be faster and to leave the "
    "results as they are.",
    "budget": "The budget was spent before another value could run.",
    "not-reached": "The call ended before it came to this setting.",
    "refused": "{why}.",
    "tie": "By all runs no other value is faster by more than a tie ({band}).",
    "batch-flat": "By all runs no larger batch is faster by more than a tie ({band}). {stopped}",
    "does-not-wait": "The program hardly waits for data, so no loader setting can gain.",
    "no-gain-tried": "No other value was tried with a gain.",
    "no-gpu-to-pin-for": "Pinned memory only helps copies to a GPU; none is here.",
    "no-plain-count": "{value!r} is no plain count; left alone.",
    "training-batch": "{trains}{to} was faster in the search, but one update would average over "
    "{to} samples instead of {from}, no accumulation makes up for it, and the learning rate was "
    "chosen for {from}.",
    "training-batch-unproven": "{to} was faster in its own run; pairs of runs ({pairs}) proved "
    "no gain. It would change how the model is trained, too.",
    "no-narrower-precision": "No narrower precision of this spelling is known.",
    "precision-not-here": "{asked}; worth a try on this target: {here}.",
    "no-precision-here": "{asked}; this target has no narrower precision.",
    "outside-tier": "Not tried: --safe was given, which changes no {class} knob.",
    "no-tolerance": "{values} not tried: no numeric-tolerance or quality measure is declared for "
    "this workload in gpu-advisor.toml.",
    "no-precision-inside": "No other precision was faster inside its guard{seen}. {stopped}",
    "no-flag-inside": "Switched on it was no faster inside its guard{seen}. {stopped}",
    "flag-on": "It is on already.",
    "saves-memory-only": "Off already: on, it saves memory and costs time.",
    "nothing-twice": "It is on, but nothing was seen to be computed twice by torch.",
    "needed-for-memory": "Without it the run did not fit into the memory, or failed.",
    "no-quicker-attention": "No quicker form of this attention is known here.",
    "no-attention-inside": "The quicker form of torch was not faster inside its guard{seen}. "
    "{stopped}",
    "flag-without-gpu": "It does something on a GPU only, and the model is not on one.",
    "no-plain-flag": "It is no plain true or false; left alone.",
    "no-quality-measure": "Fewer steps change the result, and no quality measure is declared in "
    "gpu-advisor.toml; a measure with a tolerance is the consent to trade.",
    "quality-not-read": "The original's quality could not be measured: the declared patterns did "
    "not match its output.",
    "loses-results": "Not written. {stopped}",
    "no-fewer-steps": "Kept. {stopped}",
    "failed-when-timed": "The chosen steps failed when they were timed.",
    "steps-no-faster": "Fewer steps were no faster by more than a tie ({band}).",
    "ignored": "Ignored by the program: it {did} {used}{site} whatever the config says{override}.",
    "steps-ignored": "Ignored by the program: its forwards per unit did not change{override}.",
    "changes-nothing": "Ignored by the program: {tried} instead changed nothing it computed or "
    "wrote{override}{shapes}.",
    "changes-the-product": "It changes {what}; never tuned: it changes the product.",
    "fails-at-half": "At half its value the program fails; never tuned: it changes the product.",
}
"""Reason of a decision to its sentence."""

STOPS = {
    "flat": "The search stopped because the rate is flat.",
    "few-items": "The search stopped because the data hold {items} items, and a larger batch "
    "leaves too few steps of a pass.",
    "budget": "The search stopped because the budget was spent.",
    "refused": "The search stopped because {why}.",
    "failed": "The search stopped because {value} failed: {kind}. {why}",
    "left-out": "The search stopped because in batches of {batch}, {left_out} samples of a pass "
    "would be left out, where {left_out_before} are: the loader drops a last batch that is not "
    "full (drop_last).",
    "fewer-files": "The search stopped because with {value} the program left {files} files where "
    "as many items left {expected:.0f}: results would be lost.",
    "constraint": "The search stopped because {value} was outside of {constraint}: {seen}.",
    "fewer-items": "The search stopped because with {value} {file} held {items} items where as "
    "much work left {expected:.0f}: results would be lost.",
    "other-items": "The search stopped because with {value} item {item} of {file} is another one "
    "than before, by more than rounding: results would change.",
    "memory-peaked": "The search stopped because {value} peaked at {peak_gib:.2f} GiB, more than "
    "is usable.",
    "memory-expected": "The search stopped because {value} needs about {expected_gib:.2f} GiB by "
    "the peaks measured so far ({peaks}), more than the {limit_gib:.2f} GiB usable.",
    "unfilled": "The search stopped because the program never filled a batch of {value}: it saw "
    "{seen}.",
    "ladder-ended": "The ladder of steps ended there.",
    "not-judged": "{looked_at} could not be judged: a run failed, or printed no figure.",
    "judge-over-budget": "{looked_at} could not be judged: the budget had no room for the run that "
    "would tell.",
    "out-of-tolerance": "{looked_at}: {beyond} was beyond its limit {limit} when chosen "
    "(pairs of runs: {runs}).",
    "not-confirmed": "{looked_at} looked inside when chosen; with other seeds the 95 % bound of "
    "{beyond} is {reach}, and its limit {limit} (pairs of runs: {runs}).",
    "too-noisy": "{looked_at} looked inside, and {measure} differs by {spread} from run to run "
    "where its tolerance leaves {room}: more than {most} runs a side would have to confirm it.",
    "confirm-over-budget": "{looked_at} looked inside, and the budget could not hold what would "
    "confirm it: {rounds} more runs a side.",
    "seeds-not-followed": "{looked_at} looked inside, and other seeds gave the same figures, so "
    "nothing tells how far they may differ. Let the program follow GPU_ADVISOR_SEED or a {{seed}} "
    "in its quality-command; or let it print a figure for each item, and declare other items as "
    "confirm-quality-command.",
}

NAMED = 4
"""Files that are told by name."""

KINDS = {
    "batch_size": "the batch size",
    "num_workers": "the number of loader workers",
    "grad_accum": "the gradient accumulation",
    "timesteps": "the number of sampling steps",
    "precision": "the precision",
    "image_size": "the image size",
}
"""Kinds that an experiment finds."""

SHOWN = {
    "batch_size": "its batches held {after}, not {before}",
    "num_workers": "the workers of its loader were {after}, not {before}",
    "grad_accum": "it took {after} backward passes an update, not {before}",
    "timesteps": "it took {after} forwards {one}, not {before}",
    "precision": "it computed in {after}, not {before}",
    "image_size": "its model saw sides of {after}, not {before}",
}
"""What was seen of a value that is followed."""

SURE = {
    "followed": "the program followed it when it was moved",
    "other-seen": "its name says so, and another value was seen in the run",
    "no-value": "its name says so, and its value stands elsewhere",
    "rivals": "its name says so, and {one} has another value",
    "same-seen": "its name says so, and its value was seen in the run",
    "name": "its name and value say so",
}
"""Why it is sure, or not, that a knob is one."""

SCOPES = {
    "global": ", counted over all that is shared out",
    "micro": ", counted by the smallest part",
    "device": ", counted by device",
    None: "",
}


def followed(found: Followed, unit: str = "unit") -> str:
    """`zorp is the batch size: with 40 in place of 20 its batches held 40, not 20.`"""
    shown = SHOWN[found.shown_in].format(
        one=numbers.one(unit),
        before=_count_or_word(found.before),
        after=_count_or_word(found.after),
    )
    return (
        f"`{found.path}` is {KINDS[found.kind]}{SCOPES[found.scope]}: with {found.moved_to} in "
        f"place of {found.value}, {shown}."
    )


def _count_or_word(shown: float | str) -> str:
    return shown if isinstance(shown, str) else numbers.count(shown)


def sure(sureness: Sureness) -> str:
    """Why it is as sure as it is."""
    return SURE[sureness.reason].format(**dict(sureness.data))


TRAINS = {
    "backward": "It trains by steps of its own: backward passes were seen, and no optimizer of "
    "torch's. ",
    "gradients": "It trains by steps of its own: gradients of its parameters were taken, and no "
    "optimizer of torch's stepped. ",
    "moved": "Its parameters changed while it ran, so it trains. ",
    "asked": "It takes gradients, so it may train. ",
    "unseen": "Nothing was seen of its model, so it may train; where it does not, say "
    '`phase = "test"` in gpu-advisor.toml. ',
}
"""Sign of a training without an optimizer of torch's, to words."""


HELD = {
    "bounds": "with the bounds of every quality measure inside its tolerance on seeds that did not "
    "choose it",
    "one-run": "with one run of every quality measure inside its tolerance, which proves nothing "
    "of others (quality-proof is one-run)",
}
"""How quality was looked at, to words."""

NEVER = {"num_devices": "how many processes or cards share the work is yours to say"}
"""Why a kind is never tuned by itself, where its class does not tell."""


FIGURES = {"batch": 6, "limit": 6, "room": 2, "seen": 4, "spread": 2, "times": 3}
"""Figures that a reason may hold, and the digits they are told with."""


def why(decision: Decision) -> str:
    """The sentence of one decision."""
    data = dict(decision.data)
    filled: dict[str, Any] = {
        **data,
        "seen": seen(data),
        "never": NEVER.get(decision.kind, f"it is a {data.get('class')} knob"),
        "did": "computed in" if decision.kind == "precision" else "used",
        "trains": TRAINS.get(str(data.get("trains")), ""),
        "band": numbers.percent(as_float(data.get("band"))),
        "site": f" (DataLoader built at {data['site']})" if data.get("site") else "",
        "override": f"; {data['override']}" if data.get("override") else "",
        "looked_at": f"{data['steps']} steps" if "steps" in data else "It",
        "reach": numbers.measure(as_float(data["bound"])) if data.get("bound") else "not known",
        "held": HELD.get(str(data.get("proof")), ""),
        "moved": f"; the linked schedule moved: {data['moved']}" if data.get("moved") else "",
        "shapes": f"; the model saw inputs of {data['shapes']} either way"
        if data.get("shapes") and not data.get("override")
        else "",
        "why": str(data.get("why", "")).rpartition("not editable: ")[2].rstrip("."),
    }
    shown = {
        name: numbers.measure(as_float(data[name]), digits)
        for name, digits in FIGURES.items()
        if name in data
    }
    stop = STOPS[str(data["stop"])] if "stop" in data else ""
    filled["stopped"] = stop.format(**{**filled, **data, **shown})
    filled["times"] = shown.get("times", "")
    return REASONS[decision.reason].format(**filled).strip()


def seen(data: Mapping[str, object]) -> str:
    """What the guard saw: `: loss drift 0.2 % of 2 % allowed`; empty where it did not look."""
    if "drift" in data:
        drift, allowed = as_float(data["drift"]), as_float(data["tolerance"])
        most = (
            f" (at most {numbers.percent(as_float(data['drift_most']))})"
            if "drift_most" in data
            else ""
        )
        once = ", by one run, which proves nothing of others" if "proof" in data else ""
        return f": drift {numbers.percent(drift)}{most} of {numbers.percent(allowed)} allowed{once}"
    told = [
        f"{name.removeprefix('value of ')} {numbers.measure(as_float(value))}"
        for name, value in data.items()
        if name.startswith("value of ")
    ]
    if "beyond" in data:
        told.append(
            f"{data['beyond']} is beyond its limit {numbers.measure(as_float(data['limit']))}"
        )
    if data.get("unseen"):
        told.append("there was nothing to compare")
    return ": " + ", ".join(told) if told else ""


def skipped(entry: Skipped) -> str:
    """What did not fit into the budget."""
    return (
        f"{entry.what}: it needs about {numbers.duration(entry.needed_s)}, and "
        f"{numbers.duration(max(entry.remaining_s, 0.0))} of the budget were left for it."
    )


def unread(paths: Sequence[str]) -> str:
    """Results that are not bit for bit as they were, and that nothing here can look into."""
    some = ", ".join(paths[:NAMED]) + ("" if len(paths) <= NAMED else " and others")
    return (
        f"{some}: another content than the original's, which was the same in each of its runs. The "
        "content of this format is not compared, so it may be rounding or another result: look at "
        "them before trusting what was tried."
    )


def batch_place(place: BatchPlace) -> str:
    """Where the batch is, which nothing but an experiment could tell."""
    return (
        f"A batch is dimension {place.axis + 1} of input {place.input + 1} of the model that is "
        f"called at {place.site}: it followed the setting of the batch when that was moved."
    )


def slow_starts(starts: StartupBudget) -> str | None:
    """What start-up leaves room for, and the budget that would do; None where there is enough."""
    if starts.whole_s <= starts.budget_s:
        return None
    many = int(starts.bought)
    return (
        f"Each process takes {numbers.duration(starts.usual_s)} to its first step, and at most a "
        f"third of the budget goes to that: {numbers.many(many, 'process')}. A "
        f"whole search takes about {WHOLE_SEARCH}; --budget {numbers.whole_minutes(starts.whole_s)}"
        " holds it."
    )


def gained(interval: Interval, unit: str, objective: str = "throughput") -> str:
    """`did 2.04x the tiles a second in 6 rounds ...; 95 % interval 1.98 to 2.11`"""
    rounds = f"{numbers.many(interval.n, 'interleaved round')} of fresh processes"
    wide = too_wide(interval)
    ratio = f"more than {interval.low:.2f}" if wide else f"{interval.estimate:.2f}"
    template = OBJECTIVES[objective].gain_sentence
    did = template.format(ratio=ratio, one=numbers.one(unit), units=numbers.plural(unit))
    if wide:
        return (
            f"{did} in {rounds} (lower 95 % bound); the machine was too unsteady to say how much "
            "more"
        )
    return f"{did} in {rounds}; 95 % interval {interval.low:.2f} to {interval.high:.2f}"


WIDE = 4.0
"""An interval whose high is so many times its low tells a direction and no size."""


def too_wide(interval: Interval) -> bool:
    """Whether only the lower bound is worth telling."""
    return interval.high > WIDE * interval.low


def collapsed(proof: Comparison) -> str:
    """Runs of a proof that fell far behind the others of their arm; empty where none did."""
    before, after = proof.ab_test.before.variant.label, proof.ab_test.after.variant.label
    slow, slow_before, rounds = proof.collapsed(AFTER), proof.collapsed(BEFORE), len(proof.counted)
    if not slow and not slow_before:
        return ""
    text = (
        f"In the proof of {after} {slow} of its {rounds} runs and {slow_before} of the {rounds} of "
        f"{before} were less than half as fast as the others; all of them count."
    )
    if slow > max(1, slow_before):
        text += f" If that is no accident, {after} is slower than its usual runs look."
    return text


UNDER_LOAD = "Some rounds ran under background load; rerun on an idle machine."
"""Of every gain that rests on such rounds."""


# --- suggestions --------------------------------------------------------------------------

ADVICE = {
    "switch": "In the code: {code}.{seen}{cost}{caution}",
    "loader": "They stand in the code and no config key holds them.{caution}",
    "buckets": "{padding} of the positions of its batches are padding, which is work for nothing; "
    "drawn from pools of items of like length it is {padding_after}. Give the DataLoader a "
    "`batch_sampler` that sorts some hundred batches by length, cuts them, and shuffles the "
    "batches.{reading}{caution}",
    "together": "{overlap}",
    "training-batch": "{trains}It changes how the model is trained, so it is yours to decide: one "
    "update then averages over {times} times the samples, the learning rate and its schedule "
    "have to follow, and an epoch has fewer updates. {start}",
}

ADDS_UP = 0.9
"""Part of the product of single gains from which on they are told to add up."""
FEEDING = ("DataLoader", "Batches")
"""How titles of advice begin that is about the data, not the model."""


def advised(advice: Advice) -> str:
    """The sentence of one advice."""
    data = dict(advice.data)
    cost, caution = data.get("cost_s"), data.get("caution")
    looked = seen(data)
    padding = [
        numbers.percent(as_float(data[name]))
        if data.get(name) is not None
        else numbers.NOT_MEASURED
        for name in ("padding_before", "padding_after")
    ]
    text = ADVICE[advice.kind].format(
        code=data.get("code"),
        seen=f" It stayed inside its guard{looked}." if looked else "",
        cost=f" It takes {as_float(cost):.0f} s once, at the start." if cost else "",
        reading=f" To read the length of every item took {numbers.duration(as_float(cost))} at the "
        "start; where yours are known from their files, give those."
        if cost
        else "",
        caution=f" Mind that {caution}." if caution else "",
        times=numbers.measure(as_float(data.get("times")), 3),
        start=where_to_start(data),
        padding=padding[0],
        padding_after=padding[1],
        overlap=overlap(advice) if advice.kind == "together" else "",
        trains=TRAINS.get(str(data.get("trains")), ""),
    )
    pairs = numbers.many(advice.gain.n, "interleaved pair")
    beside = f" {UNDER_LOAD}" if advice.used_contended_rounds else ""
    return f"{text} Measured in {pairs} of fresh processes.{beside}"


def overlap(advice: Advice) -> str:
    """How far the single gains add up, and what overlaps where they do not."""
    data = dict(advice.data)
    parts, product = str(data["parts"]).splitlines(), as_float(data["product"])
    reached = advice.gain.estimate / product
    told = f"The product of the {len(parts)} gains is {product:.2f}x"
    unpatched = str(data.get("unpatched") or "").splitlines()
    left = f" The patch leaves out what has none of its own: {', '.join(unpatched)}."
    left = left if unpatched and advice.patch else ""
    if reached >= ADDS_UP:
        return f"{told}, and {numbers.percent(reached)} of it was reached.{left}"
    feeds = [part for part in parts if part.startswith(FEEDING)]
    computes = [part for part in parts if part not in feeds]
    shared = [
        f"{' and '.join(those)} save parts of the same time, {what}"
        for those, what in ((feeds, "that of the data"), (computes, "that of the model"))
        if len(those) > 1
    ]
    if feeds and computes:
        shared.append(
            "once the data or the model is quicker, the other sets the pace, so that what speeds "
            "up the one hides what speeds up the other"
        )
    return f"{told}, and {numbers.percent(reached)} of it was reached: {'; '.join(shared)}.{left}"


def where_to_start(data: Mapping[str, object]) -> str:
    """The learning rate that people begin with, by the rule for the optimizer that was seen."""
    times = as_float(data.get("times"))
    linear, root = (
        f"{numbers.measure(times, 3)} times",
        f"{numbers.measure(times**0.5, 3)} times (the square root)",
    )
    names = str(data.get("optimizer") or "")
    rules = {rule_for(name) for name in names.split(", ")}
    rule = rules.pop() if len(rules) == 1 else None
    if rule is None:
        return (
            f"Where people start: {linear} the rate with SGD, {root} with Adam; neither was tried "
            "here."
        )
    start = linear if rule[1] == 1.0 else root
    return f"It steps with {names}, so people start at {start} the rate; that was not tried here."
