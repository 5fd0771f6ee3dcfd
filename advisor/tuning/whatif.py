"""What is not ours to write: tried on top of the best candidate, and told as advice.

Mostly what no config key holds, tried from inside the process; and a training batch whose change
nothing makes up for. What was faster by more than a tie, and is again in pairs, becomes Advice,
with a patch where the place in the code is certain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor import knobs
from advisor.model import Advice, Candidate, Failure, Interval
from advisor.stats import ratio_interval
from advisor.tuning import python_source
from advisor.tuning.confirm import fewest_rounds, proven
from advisor.tuning.loader_arguments import loader_proposals
from advisor.tuning.proposals import Proposal, measure
from advisor.tuning.runner import OverBudgetError
from advisor.tuning.search import figure, shown
from advisor.tuning.switches import SETTINGS, applies, tried

if TYPE_CHECKING:
    from advisor.tuning.guard import Guard
    from advisor.tuning.search import Search


def advise(search: Search, guard: Guard) -> None:
    """Try what fits into the budget, and put what was really faster into `search.advice`."""
    if search.best is None:
        return
    if not search.best_candidate.changes:
        search.runner.reserve_s = lambda: 0.0  # nothing waits to be confirmed
    proposals = training_batches(search)
    without_gain: list[str] = []
    try:
        proposals += loader_proposals(search, without_gain)
        for setting in SETTINGS:
            if applies(search, setting, guard):
                proposals += tried(search, setting, guard, without_gain)
    except OverBudgetError as problem:
        search.over_budget("settings of the code", problem, matters=False)
    for proposal in sorted(proposals, key=lambda proposal: -proposal.ratio):
        settle(search, proposal, without_gain)
    if without_gain:
        search.notes.append(
            "Tried from inside the process without a gain worth a change: "
            + ", ".join(without_gain)
            + "."
        )


def training_batches(search: Search) -> list[Proposal]:
    """Batches that were faster and would change how the model is trained."""
    assert search.best is not None
    program, proposals = search.runner.program, []
    for knob, value, run in search.advisable:
        candidate = search.with_value(knob, value)
        if isinstance(candidate, knobs.Refusal):
            continue
        patch = None
        if program.config is not None and program.config.path is not None:
            old, new = (program.content(of) for of in (search.best_candidate, candidate))
            patch = python_source.file_patch(program.config.path, old, new, program.cwd)
        proposals.append(
            Proposal(
                candidate=candidate,
                title=f"{knob.path}: {knob.value} to {value}",
                detail="It changes how the model is trained, so it is yours to decide: one update "
                f"then averages over {value / float(str(knob.value)):g} times the samples, the "
                "learning rate and its schedule have to follow, and an epoch has fewer updates.",
                run=run,
                ratio=run.units_per_s / search.best.units_per_s,
                patch=patch,
            )
        )
    return proposals


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
            without_gain.append(f"{proposal.whatif or proposal.title} ({seen})")
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
    """Pairs of the best candidate and of what is proposed, order flipped every round.

    None if a process failed. Raises OverBudgetError if all the pairs do not fit.
    """
    rounds = fewest_rounds(proposal.ratio)
    if rounds * (2 * search.expected_s() + proposal.extra_s) > search.runner.left_s:
        raise OverBudgetError(proposal.title)
    arms: list[tuple[Candidate, str | None, float]] = [
        (search.best_candidate, None, 0.0),
        (proposal.candidate, proposal.whatif, proposal.extra_s),
    ]
    rates: tuple[list[float], list[float]] = ([], [])
    for round_ in range(rounds):
        for arm in (0, 1) if round_ % 2 == 0 else (1, 0):
            candidate, whatif, extra_s = arms[arm]
            series = f"{proposal.whatif or proposal.title} {round_}"
            result = measure(search, whatif, candidate=candidate, series=series, extra_s=extra_s)
            if isinstance(result, Failure):
                return None
            rates[arm].append(result.units_per_s)
    return ratio_interval(*rates)
