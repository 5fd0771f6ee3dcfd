"""What a config cannot hold: proven settings of the code, each with a patch where one is certain.

patches.py        one call's arguments, statements after the imports
model_patches.py  around the model's call
python_source.py  a Python file edited by the positions of its syntax tree
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from advisor.advice import model_patches, patches, python_source
from advisor.model import Advice
from advisor.strategy.switches import SWITCHES

if TYPE_CHECKING:
    from advisor.experiments.program import Program
    from advisor.model import Interval, JsonScalar
    from advisor.strategy.facts import Proposal
    from advisor.strategy.standing import Standing

Place = tuple[Path, int]


def proven_advice(now: Standing, program: Program) -> tuple[Advice, ...]:
    """Every proposal whose pairs lie above the smallest gain, the largest gain first."""
    found = []
    for proposal in now.proposals:
        outcome, objective = proposal.outcome, now.facts.objective
        if outcome is None or not outcome.proven(objective, now.facts.smallest_gain):
            continue
        interval = outcome.interval(objective)
        assert interval is not None
        found.append(advice_of(now, program, proposal, interval))
    return tuple(sorted(found, key=lambda advice: -advice.gain.estimate))


def advice_of(now: Standing, program: Program, proposal: Proposal, gain: Interval) -> Advice:
    """One proven proposal, with where it belongs and the patch that puts it there."""
    before, run = now.front, proposal.run
    site: str | None = None
    patch: str | None = None
    data: dict[str, JsonScalar] = dict(proposal.data)
    if proposal.kind == "training-batch":
        patch = config_patch(program, now, proposal)
    elif proposal.kind == "loader":
        place = located(program.cwd, before.effects.loader_site)
        site = written_at(place, before.effects.loader_site)
        values = cast("dict[str, int | bool]", data)
        patch = patches.loader_patch(*place, values, program.cwd) if place else None
        data = {
            "wait_before": before.wait_share,
            "wait_after": run.wait_share if run else None,
            "caution": run.whatif.caution if run and run.whatif else None,
        }
    else:
        site, patch, code = switched(now, program, proposal.title)
        cost_s = run.whatif.cost_s if run and run.whatif else None
        data = {**data, "code": code, "cost_s": cost_s}
    return Advice(
        kind=proposal.kind,
        title=proposal.title,
        gain=gain,
        data=tuple(data.items()),
        site=site,
        patch=patch,
    )


def config_patch(program: Program, now: Standing, proposal: Proposal) -> str | None:
    """The config's change as a diff."""
    if program.config is None or program.config.path is None:
        return None
    old, new = (program.content(of) for of in (now.best, proposal.arm.candidate))
    return python_source.file_patch(program.config.path, old, new, program.cwd)


def switched(now: Standing, program: Program, whatif: str) -> tuple[str | None, str | None, str]:
    """Where the code would change for what was tried, `compile` or `threads=4`, the patch where
    that place is certain, and the code in words."""
    name, _, value = whatif.partition("=")
    switch = next(switch for switch in SWITCHES if switch.name == name)
    site, cwd = now.front.effects.model_site, program.cwd
    code = switch.code.format(value=value)
    place = located(cwd, site)
    if place is None:
        return site, None, code
    path, line = place
    if switch.statements:
        lines = tuple(line.format(value=value) for line in switch.statements)
        return site, patches.statement_patch(path, lines, cwd), code
    if name == "autocast":
        device = (now.front.effects.device or "cpu").partition(":")[0]
        return site, model_patches.autocast_patch(path, line, device, value, cwd), code
    if name == "compile":
        return site, model_patches.compile_patch(path, line, cwd), code
    if name == "set_to_none" and (found := model_patches.zero_grad_patch(path, cwd)):
        at = f"{(site or '').rpartition(':')[0]}:{found[0]} zero_grad(...)"
        return at, found[1], code
    return site, None, code


def located(cwd: Path, site: str | None) -> Place | None:
    """File and line of a `file.py:line`, if the file is there."""
    name, _, line = (site or "").rpartition(":")
    path = cwd / name
    return (path, int(line)) if name and line.isdigit() and path.is_file() else None


def written_at(place: Place | None, site: str | None) -> str | None:
    """`train.py:88 DataLoader(...)`: the call that holds the arguments, where it was found."""
    found = patches.loader_place(*place) if place else None
    if site is None or found is None:
        return site
    line, name = found
    return f"{site.rpartition(':')[0]}:{line} {name}(...)"
