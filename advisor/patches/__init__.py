"""What a config cannot hold: proven settings of the code, with a patch where one is certain."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from advisor.model import Advice
from advisor.patches import (
    bucket_patch,
    model_patches,
    patches,
    python_source,
)
from advisor.tuner.switches import SWITCHES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from advisor.executor.program import Program
    from advisor.model import Effects, Interval, JsonScalar
    from advisor.patches.python_source import Edit
    from advisor.tuner.facts import Suggestion
    from advisor.tuner.standing import TunerState
    from advisor.tuner.switches import Switch

Place = tuple[Path, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeEdit:
    """A change of one file of the user's code."""

    path: Path
    edit: Edit


def proven_advice(now: TunerState, program: Program) -> tuple[Advice, ...]:
    """Every proposal whose pairs lie above the smallest gain, the largest gain first; what was
    measured of all of them together comes last."""
    found = []
    for proposal in now.proposals:
        outcome, objective = proposal.outcome, now.facts.objective
        if outcome is None:
            continue
        interval = outcome.interval(objective)
        together = proposal.kind == "together"
        if interval is None or not (together or outcome.proven(objective, now.facts.smallest_gain)):
            continue
        found.append(advice_of(now, program, proposal, interval))
    return tuple(sorted(found, key=lambda each: (each.kind == "together", -each.gain.estimate)))


def advice_of(now: TunerState, program: Program, proposal: Suggestion, gain: Interval) -> Advice:
    """One proven proposal, with where it belongs and the patch that puts it there."""
    before, run, cwd = now.front, proposal.run, program.cwd
    site: str | None = None
    data: dict[str, JsonScalar] = dict(proposal.data)
    if proposal.kind in {"loader", "buckets"}:
        place = located(cwd, before.effects.loader_site)
        site = written_at(place, before.effects.loader_site)
        data |= {
            "wait_before": before.wait_share,
            "wait_after": run.wait_share,
            "padding_before": before.effects.padding_share,
            "padding_after": run.effects.padding_share,
            "caution": run.whatif.caution if run.whatif else None,
            "cost_s": run.whatif.cost_s if run.whatif else None,
        }
    elif proposal.kind == "switch":
        switch, value = switch_of(proposal.title)
        site = sited(now, cwd, switch)
        cost_s = run.whatif.cost_s if run.whatif else None
        caution = run.whatif.caution if run.whatif else None
        code = switch.code.format(value=value)
        data = {**data, "code": code, "cost_s": cost_s, "caution": caution}
    patched = [proposal]
    if proposal.kind == "together":
        parts = [each for each in now.proposals if each.title in data_of(proposal, "parts")]
        patched = [each for each in parts if patch_for(now, program, [each])]
        data["unpatched"] = "\n".join(each.title for each in parts if each not in patched)
    return Advice(
        kind=proposal.kind,
        title=proposal.title,
        gain=gain,
        data=tuple(data.items()),
        site=site,
        patch=patch_for(now, program, patched) if patched else None,
        used_contended_rounds=proposal.outcome is not None
        and proposal.outcome.used_contended_rounds,
    )


def data_of(proposal: Suggestion, name: str) -> list[str]:
    """Lines of one entry of a proposal's data."""
    return str(dict(proposal.data).get(name, "")).splitlines()


def patch_for(now: TunerState, program: Program, proposals: Sequence[Suggestion]) -> str | None:
    """The patches of `proposals` as one: each file is changed once, by all of them together. None
    where any of them has none, or where they cannot be made together."""
    diffs: list[str] = []
    edits: dict[Path, list[Edit]] = {}
    for proposal in proposals:
        if proposal.variant.candidate.key != now.best.key:
            if (diff := config_patch(program, now, proposal)) is None:
                return None
            diffs.append(diff)
        for change in code_edits(now, program.cwd, proposal):
            if change is None:
                return None
            edits.setdefault(change.path, []).append(change.edit)
    for path, those in edits.items():
        diff = python_source.patch_of(path, program.cwd, *those)
        if diff is None:
            return None
        diffs.append(diff)
    return "".join(diffs)


def config_patch(program: Program, now: TunerState, proposal: Suggestion) -> str | None:
    """The config's change as a diff."""
    if program.config is None or program.config.path is None:
        return None
    old, new = (program.content(of) for of in (now.best, proposal.variant.candidate))
    return python_source.file_patch(program.config.path, old, new, program.cwd)


def code_edits(now: TunerState, cwd: Path, proposal: Suggestion) -> list[CodeEdit | None]:
    """What a proposal changes in the code; None for what has no certain place."""
    seen = now.front.effects
    data = dict(proposal.data)
    if proposal.kind == "training-batch":
        return []
    if proposal.kind == "loader":
        return [loader_change(cwd, seen, cast("dict[str, int | bool]", data))]
    if proposal.kind == "buckets":
        place = located(cwd, seen.loader_site)
        told = proposal.run.whatif
        if place is None or told is None or told.told_by is None:
            return [None]
        edit = bucket_patch.bucket_edit(place[1], told.told_by, told.readings or 1)
        return [CodeEdit(path=place[0], edit=edit)]
    return [switch_change(cwd, seen, proposal, proposal.title)]


def loader_change(cwd: Path, seen: Effects, values: dict[str, int | bool]) -> CodeEdit | None:
    """Arguments of the DataLoader call."""
    place = located(cwd, seen.loader_site)
    return place and CodeEdit(path=place[0], edit=patches.loader_edit(place[1], values))


def switch_change(cwd: Path, seen: Effects, proposal: Suggestion, whatif: str) -> CodeEdit | None:
    """A switch of the catalogue, as it was tried in `proposal`."""
    place = located(cwd, seen.model_site)
    if place is None:
        return None
    path, line = place
    switch, value = switch_of(whatif)
    device = (seen.device or "cpu").partition(":")[0]
    told = proposal.run.whatif
    plain = told is not None and told.one_tensor is True
    made: dict[str, Callable[[], Edit]] = {
        "autocast": lambda: model_patches.autocast_edit(line, device, value, widen=plain),
        "channels_last": lambda: model_patches.channels_last_edit(line),
        "compile": lambda: model_patches.compile_edit(line),
        "set_to_none": lambda: model_patches.zero_grad_edit,
    }
    if switch.statements:
        lines = tuple(line.format(value=value) for line in switch.statements)
        return CodeEdit(path=path, edit=patches.statement_edit(lines))
    return CodeEdit(path=path, edit=made[switch.name]()) if switch.name in made else None


def switch_of(whatif: str) -> tuple[Switch, str]:
    """The switch and the value of what was tried, `compile` or `threads=4`."""
    name, _, value = whatif.partition("=")
    return next(switch for switch in SWITCHES if switch.name == name), value


def sited(now: TunerState, cwd: Path, switch: Switch) -> str | None:
    """Where the code of a switch stands, or would."""
    site = now.front.effects.model_site
    place = located(cwd, site)
    source = python_source.read_source(place[0]) if place else None
    line = model_patches.zero_grad_line(source) if source else None
    if switch.name != "set_to_none" or line is None:
        return site
    return f"{(site or '').rpartition(':')[0]}:{line} zero_grad(...)"


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
