"""Advice on confirmed suggestions, with certain patches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.model import Advice
from advisor.patches import bucket_patch, model_patches, patches, python_source
from advisor.tuner.code_suggestions import is_confirmed, overlap, switch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from advisor.executor.program import Program
    from advisor.model import Effects, Interval
    from advisor.patches.python_source import Edit
    from advisor.tuner.code_suggestions import Switch
    from advisor.tuner.state import Suggestion, TunerState

Place = tuple[Path, int]
BESIDE_OTHERS = "Some rounds ran under background load; rerun on an idle machine."


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeEdit:
    """A change of one file of the user's code."""

    path: Path
    edit: Edit


def proven_advice(state: TunerState, program: Program) -> tuple[Advice, ...]:
    """Confirmed suggestions, the largest gain first.

    All of them together come last.
    """
    found = []
    for suggestion in state.suggestions:
        outcome = suggestion.outcome
        interval = outcome.interval(state.context.objective) if outcome else None
        together = suggestion.kind == "together"
        if interval is not None and (together or is_confirmed(state, suggestion)):
            found.append(advice_of(state, program, suggestion, interval))
    return tuple(sorted(found, key=lambda each: (each.kind == "together", -each.gain.estimate)))


def advice_of(
    state: TunerState, program: Program, suggestion: Suggestion, gain: Interval
) -> Advice:
    """One confirmed suggestion, with its place and its patch."""
    seen, cwd, site = state.incumbent_run.effects, program.cwd, None
    reason = suggestion.reason
    if suggestion.kind in {"loader", "buckets"}:
        site = written_at(located(cwd, seen.loader_site), seen.loader_site)
    elif suggestion.kind == "switch":
        site = sited(state, cwd, switch_of(suggestion.title)[0])
    patched = [suggestion]
    if suggestion.kind == "together":
        parts = [each for each in state.suggestions if each.title in suggestion.parts]
        patched = [each for each in parts if patch_for(state, program, [each])]
        reason = overlap(suggestion, gain.estimate)
        left = [each.title for each in parts if each not in patched]
        if left and patched:
            reason += f" The patch leaves out what has none of its own: {', '.join(left)}."
    contended = suggestion.outcome is not None and suggestion.outcome.used_contended_rounds
    pairs = "1 interleaved pair" if gain.n == 1 else f"{gain.n} interleaved pairs"
    beside = f" {BESIDE_OTHERS}" if contended else ""
    return Advice(
        kind=suggestion.kind,
        title=suggestion.title,
        gain=gain,
        reason=f"{reason} Measured in {pairs} of fresh processes.{beside}",
        site=site,
        patch=patch_for(state, program, patched) if patched else None,
        used_contended_rounds=contended,
    )


def patch_for(state: TunerState, program: Program, suggestions: Sequence[Suggestion]) -> str | None:
    """Combine patches, one change a file.

    None where any of them has none, or where they cannot be made together.
    """
    diffs: list[str] = []
    edits: dict[Path, list[Edit]] = {}
    for suggestion in suggestions:
        if suggestion.variant.candidate.key != state.best.key:
            if (diff := config_patch(program, state, suggestion)) is None:
                return None
            diffs.append(diff)
        if suggestion.kind == "training-batch":
            continue
        change = code_edit(state, program.cwd, suggestion)
        if change is None:
            return None
        edits.setdefault(change.path, []).append(change.edit)
    for path, those in edits.items():
        diff = python_source.patch_of(path, program.cwd, *those)
        if diff is None:
            return None
        diffs.append(diff)
    return "".join(diffs)


def config_patch(program: Program, state: TunerState, suggestion: Suggestion) -> str | None:
    """The config's change as a diff."""
    patches = []
    for config in program.configs:
        old, new = (
            program.content(config, of) for of in (state.best, suggestion.variant.candidate)
        )
        if config.path is not None and new != old:
            patches.append(python_source.file_patch(config.path, old, new, program.cwd))
    return "".join(filter(None, patches)) or None


def code_edit(state: TunerState, cwd: Path, suggestion: Suggestion) -> CodeEdit | None:
    """Edit of a suggestion; None without a certain place."""
    seen = state.incumbent_run.effects
    if suggestion.kind == "switch":
        return switch_change(cwd, seen, suggestion)
    place = located(cwd, seen.loader_site)
    if place is None:
        return None
    if suggestion.kind == "loader":
        edit = patches.loader_edit(place[1], dict(suggestion.arguments))
        return CodeEdit(path=place[0], edit=edit)
    whatif = suggestion.run.whatif
    if whatif is None or whatif.told_by is None:
        return None
    edit = bucket_patch.bucket_edit(place[1], whatif.told_by, whatif.readings or 1)
    return CodeEdit(path=place[0], edit=edit)


def switch_change(cwd: Path, seen: Effects, suggestion: Suggestion) -> CodeEdit | None:
    """A switch of the catalogue, as it was tried."""
    place = located(cwd, seen.model_site)
    if place is None:
        return None
    path, line = place
    switch, value = switch_of(suggestion.title)
    device = (seen.device or "cpu").partition(":")[0]
    whatif = suggestion.run.whatif
    plain = whatif is not None and whatif.one_tensor is True
    made: dict[str, Callable[[], Edit]] = {
        "autocast": lambda: model_patches.autocast_edit(line, device, value, widen=plain),
        "channels_last": lambda: model_patches.channels_last_edit(line),
        "compile": lambda: model_patches.compile_edit(line, value),
        "set_to_none": lambda: model_patches.zero_grad_edit,
    }
    if switch.statements:
        lines = tuple(line.format(value=value) for line in switch.statements)
        return CodeEdit(path=path, edit=patches.statement_edit(lines))
    return CodeEdit(path=path, edit=made[switch.name]()) if switch.name in made else None


def sited(state: TunerState, cwd: Path, switch: Switch) -> str | None:
    """Place of the code of a switch."""
    site = state.incumbent_run.effects.model_site
    place = located(cwd, site)
    source = python_source.read_source(place[0]) if place else None
    line = model_patches.zero_grad_line(source) if source else None
    if switch.name != "set_to_none" or line is None:
        return site
    return f"{(site or '').rpartition(':')[0]}:{line} zero_grad(...)"


def located(cwd: Path, site: str | None) -> Place | None:
    """File and line of an existing `file.py:line`."""
    name, _, line = (site or "").rpartition(":")
    path = cwd / name
    return (path, int(line)) if name and line.isdigit() and path.is_file() else None


def written_at(place: Place | None, site: str | None) -> str | None:
    """`train.py:88 DataLoader(...)`: the call that holds the arguments."""
    found = patches.loader_place(*place) if place else None
    if site is None or found is None:
        return site
    line, name = found
    return f"{site.rpartition(':')[0]}:{line} {name}(...)"
