"""What no config key holds: tried from inside the process, on top of the best candidate.

Each what-if costs one process, and is only worth it where the program has not set it already and
the config has no knob for it. Those faster by more than a tie become Advice, with a patch where
the place in the code is certain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.model import Advice, Failure, Interval, Run
from advisor.stats import ratio_interval
from advisor.tuning import patches
from advisor.tuning.confirm import fewest_rounds, proven
from advisor.tuning.loader import waits, worker_counts
from advisor.tuning.runner import OverBudgetError
from advisor.tuning.search import figure, shown

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from advisor.tuning.guard import Guard
    from advisor.tuning.search import Search

COMPILE_S = 90.0
"""What compilation may add to one process; it is kept out of the measured window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One switch of the catalogue, and when it deserves a process."""

    name: str
    """As the probe knows it; `autocast` gets its dtype from the target."""
    kind: str | None
    """The knob that would hold it in a config."""
    effect: str
    """Field of Effects that tells whether it is on, and the value it must have to be tried."""
    off: object
    needs_cuda: bool = True
    needs_training: bool = False
    guarded: bool = False
    """It changes rounding: tried only where the user declared a tolerance."""
    extra_s: float = 0.0
    code: str
    """What to write in the code."""
    statements: tuple[str, ...] = ()
    """The same, where it can stand by itself after the imports."""


SETTINGS = (
    Setting(
        name="cudnn_benchmark",
        kind="cudnn_benchmark",
        effect="cudnn_benchmark",
        off=False,
        code="torch.backends.cudnn.benchmark = True",
        statements=("torch.backends.cudnn.benchmark = True",),
    ),
    Setting(
        name="channels_last",
        kind="channels_last",
        effect="channels_last",
        off=False,
        code="model = model.to(memory_format=torch.channels_last), and the same for its input",
    ),
    Setting(
        name="non_blocking",
        kind=None,
        effect="pin_memory",
        off=True,
        code="batch.to(device, non_blocking=True)",
    ),
    Setting(
        name="set_to_none",
        kind=None,
        effect="set_to_none",
        off=False,
        needs_cuda=False,
        needs_training=True,
        code="optimizer.zero_grad(set_to_none=True)",
    ),
    Setting(
        name="tf32",
        kind="tf32",
        effect="tf32",
        off=False,
        guarded=True,
        code="torch.backends.cuda.matmul.allow_tf32 = True",
        statements=(
            "torch.backends.cuda.matmul.allow_tf32 = True",
            "torch.backends.cudnn.allow_tf32 = True",
        ),
    ),
    Setting(
        name="autocast",
        kind="precision",
        effect="dtype",
        off="float32",
        needs_cuda=False,
        guarded=True,
        code="with torch.autocast(device_type, dtype=torch.{dtype}): around the model's call",
    ),
    Setting(
        name="compile",
        kind="compile",
        effect="compiled",
        off=False,
        extra_s=COMPILE_S,
        code="model.compile()",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A what-if that ran faster than the best candidate by more than a tie."""

    whatif: str
    title: str
    detail: str
    run: Run
    ratio: float
    """Of single runs."""
    extra_s: float = 0.0
    site: str | None = None
    patch: str | None = None


def advise(search: Search, guard: Guard) -> None:
    """Try what fits into the budget, and put what was really faster into `search.advice`."""
    if search.best is None:
        return
    if not search.best_candidate.changes:
        search.runner.reserve_s = lambda: 0.0  # nothing waits to be confirmed
    proposals: list[Proposal] = []
    without_gain: list[str] = []
    try:
        proposals += loader_proposals(search, without_gain)
        for setting in SETTINGS:
            if applies(search, setting, guard):
                proposals += tried(search, setting, guard, without_gain)
    except OverBudgetError as problem:
        search.over_budget("settings of the code", problem)
    for proposal in sorted(proposals, key=lambda proposal: -proposal.ratio):
        settle(search, proposal, without_gain)
    if without_gain:
        search.notes.append(
            "Tried from inside the process without a gain worth a change: "
            + ", ".join(without_gain)
            + "."
        )


def measure(
    search: Search, whatif: str | None, *, series: str = "", extra_s: float = 0.0
) -> Run | Failure:
    """The best candidate with `whatif` in a process of its own. Raises OverBudgetError.

    An earlier call's pairs are as good as new ones: history is believed only while the machine is.
    """
    return search.runner.measure(
        search.best_candidate,
        "whatif",
        search.plan(search.best_candidate, whatif=whatif),
        series=series,
        expected_s=search.expected_s() + extra_s,
    )


def held_by_config(search: Search, *kinds: str) -> bool:
    """Whether a knob of the documents sets this, and the program follows it."""
    return any(
        decision is None or decision.outcome != "ignored"
        for knob in search.of_kind(*kinds)
        for decision in [search.decisions.get((knob.document, knob.path))]
    )


def on_cuda(search: Search) -> bool:
    """Whether the best run's model was on a GPU."""
    return search.best is not None and (search.best.effects.device or "").startswith("cuda")


def trains(search: Search) -> bool:
    """Whether the program steps an optimizer."""
    return search.best is not None and search.best.step_kind == "optimizer step"


# --- switches -----------------------------------------------------------------------------


def applies(search: Search, setting: Setting, guard: Guard) -> bool:
    """Whether `setting` deserves a process: it is off, it can matter, and no config holds it."""
    assert search.best is not None
    seen = getattr(search.best.effects, setting.effect)
    if seen != setting.off or (setting.kind and held_by_config(search, setting.kind)):
        return False
    if (setting.needs_cuda and not on_cuda(search)) or (
        setting.needs_training and not trains(search)
    ):
        return False
    if setting.name == "autocast" and precision(search) is None:
        return False
    if not setting.guarded:
        return True
    if guard.declared:
        return True
    search.notes.append(
        f"{setting.name} was not tried: it changes rounding, and no numeric-tolerance or quality "
        "measure is declared for this workload in gpu-advisor.toml."
    )
    return False


def precision(search: Search) -> str | None:
    """The dtype to autocast to; float16 only where no gradients need a scaler."""
    if "bfloat16" in search.precisions:
        return "bfloat16"
    return "float16" if "float16" in search.precisions and not trains(search) else None


def tried(
    search: Search, setting: Setting, guard: Guard, without_gain: list[str]
) -> list[Proposal]:
    """Run `setting`; a proposal if it was faster and, where it needs one, inside its guard."""
    assert search.best is not None
    dtype = precision(search) if setting.name == "autocast" else None
    whatif = f"{setting.name}={dtype}" if dtype else setting.name
    run = outcome(search, whatif, without_gain, setting.extra_s)
    if run is None:
        return []
    seen = ""
    if setting.guarded:
        inside, seen = guard.within(search.best_candidate, run, whatif)
        if not inside:
            without_gain.append(f"{whatif} ({seen})")
            return []
    site = search.best.effects.model_site
    placed = _located(search, site) if setting.statements else None
    cost = run.whatif.cost_s if run.whatif else None
    parts = [
        f"In the code: `{setting.code.format(dtype=dtype)}`",
        seen,
        f"It takes {cost:.0f} s once, at the start" if cost else "",
    ]
    return [
        Proposal(
            whatif=whatif,
            title=whatif,
            detail=". ".join(part for part in parts if part) + ".",
            run=run,
            ratio=run.units_per_s / search.best.units_per_s,
            extra_s=setting.extra_s,
            site=site,
            patch=patches.statement_patch(placed[0], setting.statements, search.runner.program.cwd)
            if placed
            else None,
        )
    ]


def outcome(
    search: Search, whatif: str, without_gain: list[str], extra_s: float = 0.0
) -> Run | None:
    """The run with `whatif`, if it applied and was faster by more than a tie."""
    assert search.best is not None
    result = measure(search, whatif, extra_s=extra_s)
    if isinstance(result, Failure):
        without_gain.append(f"{whatif} ({result.kind}: {result.evidence})")
    elif result.whatif is None or not result.whatif.applied:
        why = result.whatif.why if result.whatif else "the probe could not tell"
        without_gain.append(f"{whatif} (did not apply: {why})")
    elif not search.faster(result, search.best):
        without_gain.append(f"{whatif} ({result.units_per_s / search.best.units_per_s:.2f}x)")
    elif (result.peak_mem_gib or 0.0) > search.memory_limit_gib:
        without_gain.append(f"{whatif} (peaked at {result.peak_mem_gib:.2f} GiB)")
    else:
        return result
    return None


# --- loader arguments ---------------------------------------------------------------------


def loader_proposals(search: Search, without_gain: list[str]) -> list[Proposal]:
    """Arguments of the DataLoader call, each on top of those that were faster: one proposal."""
    best = search.best
    assert best is not None
    if best.effects.workers is None:
        return []
    site = best.effects.loader_site
    chosen: dict[str, int | bool] = {}
    fastest: Run | None = None
    for name, values in loader_values(search):
        for value in values:
            if _needs_workers(name) and not chosen.get("num_workers", best.effects.workers):
                continue
            whatif = loader_whatif({**chosen, name: value}, site)
            run = outcome(search, whatif, without_gain)
            if run is None and name == "batch_size":
                break
            if run is None or (fastest is not None and not search.faster(run, fastest)):
                continue
            if fastest is not None and not again_faster(search, whatif, fastest):
                continue
            fastest, chosen = run, {**chosen, name: value}
    if fastest is None:
        return []
    place = _located(search, site)
    return [
        Proposal(
            whatif=loader_whatif(chosen, site),
            title="DataLoader arguments: "
            + ", ".join(f"{name}={value!r}" for name, value in chosen.items()),
            detail=loader_detail(best, fastest),
            run=fastest,
            ratio=fastest.units_per_s / best.units_per_s,
            site=f"{site} DataLoader(...)" if site else None,
            patch=patches.loader_patch(*place, chosen, search.runner.program.cwd)
            if place
            else None,
        )
    ]


def again_faster(search: Search, whatif: str, fastest: Run) -> bool:
    """Whether a second run agrees: an argument on top of others must not come in by one draw."""
    result = measure(search, whatif, series="again")
    return isinstance(result, Run) and search.faster(result, fastest)


def loader_values(search: Search) -> Iterable[tuple[str, list[int] | list[bool]]]:
    """Arguments worth trying and their values, in the order in which they build on each other."""
    assert search.best is not None
    seen = search.best.effects
    if waits(search):
        if not held_by_config(search, "num_workers"):
            yield "num_workers", worker_counts(search, seen.workers)
        if not held_by_config(search, "prefetch_factor") and (seen.prefetch_factor or 2) < 4:
            yield "prefetch_factor", [4]
        if not held_by_config(search, "persistent_workers") and not seen.persistent_workers:
            yield "persistent_workers", [True]
    if on_cuda(search) and not held_by_config(search, "pin_memory") and seen.pin_memory is False:
        yield "pin_memory", [True]
    if not trains(search) and not held_by_config(search, "batch_size") and seen.batch:
        yield "batch_size", [int(seen.batch) * times for times in (2, 4, 8, 16)]


def _needs_workers(name: str) -> bool:
    return name in {"prefetch_factor", "persistent_workers"}


def loader_whatif(values: dict[str, int | bool], site: str | None) -> str:
    """`loader.num_workers=4,loader.prefetch_factor=4@train.py:88`"""
    words = ",".join(f"loader.{name}={int(value)}" for name, value in values.items())
    return words + (f"@{site}" if site else "")


def loader_detail(before: Run, after: Run) -> str:
    """What the arguments did, for the report."""
    text = (
        "They stand in the code and no config key holds them. The program waited "
        f"{before.wait_share or 0:.0%} of its time for data, and {after.wait_share or 0:.0%} "
        "with these"
    )
    caution = after.whatif.caution if after.whatif else None
    return f"{text}. Mind that {caution}." if caution else f"{text}."


def _located(search: Search, site: str | None) -> tuple[Path, int] | None:
    """File and line of a `file.py:line`, if the file is there."""
    name, _, line = (site or "").rpartition(":")
    path = search.runner.program.cwd / name
    return (path, int(line)) if name and line.isdigit() and path.is_file() else None


# --- from a faster run to advice ----------------------------------------------------------


def settle(search: Search, proposal: Proposal, without_gain: list[str]) -> None:
    """Advice with bounds where the budget allows pairs, else with the one run, said so."""
    assert search.best is not None
    try:
        gain = interleaved(search, proposal)
    except OverBudgetError:
        gain = None
        measured = (
            f"One run did {shown(proposal.run)} against {figure(search.best.units_per_s)}, "
            f"{proposal.ratio:.2f}x; the budget did not allow the pairs that would prove it."
        )
    else:
        if gain is None or not proven(gain, search.smallest_gain):
            seen = f"{gain.estimate:.2f}x in {gain.n} pairs" if gain else "failed when repeated"
            without_gain.append(f"{proposal.whatif} ({seen})")
            return
        measured = f"Measured in {gain.n} interleaved pairs of fresh processes."
    search.advice.append(
        Advice(
            title=proposal.title,
            detail=f"{proposal.detail} {measured}",
            gain=gain,
            site=proposal.site,
            patch=proposal.patch,
        )
    )


def interleaved(search: Search, proposal: Proposal) -> Interval | None:
    """Pairs of the best candidate without and with it, order flipped every round.

    None if a process failed. Raises OverBudgetError if all the pairs do not fit.
    """
    rounds = fewest_rounds(proposal.ratio)
    if rounds * (2 * search.expected_s() + proposal.extra_s) > search.runner.left_s:
        raise OverBudgetError(proposal.whatif)
    rates: dict[str | None, list[float]] = {None: [], proposal.whatif: []}
    for round_ in range(rounds):
        for whatif in list(rates) if round_ % 2 == 0 else reversed(list(rates)):
            result = measure(
                search,
                whatif,
                series=f"{proposal.whatif} {round_}",
                extra_s=proposal.extra_s if whatif else 0.0,
            )
            if isinstance(result, Failure):
                return None
            rates[whatif].append(result.units_per_s)
    return ratio_interval(rates[None], rates[proposal.whatif])
