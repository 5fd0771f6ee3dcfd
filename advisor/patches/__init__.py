"""Advice on confirmed suggestions, with patches where the place is certain."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from advisor import numbers
from advisor.executor.comparison import UNDER_LOAD
from advisor.executor.requests import COMMAND_LINE, Program
from advisor.knobs.registry import REGISTRY
from advisor.model import Advice, Change, Effects
from advisor.patches import patches
from advisor.patches.patches import Edit, file_patch, patch_of
from advisor.tuner.code_suggestions import is_confirmed
from advisor.tuner.state import Suggestion, TunerState


def proven_advice(state: TunerState, program: Program) -> tuple[Advice, ...]:
    """Confirmed suggestions, largest gain first."""
    advice = []
    for suggestion in state.suggestions:
        outcome = suggestion.outcome
        if outcome is None or not is_confirmed(state, suggestion):
            continue
        gain = outcome.interval(state.context.objective)
        assert gain is not None  # what is proven has bounds
        pairs = numbers.many(gain.n, "interleaved pair")
        reason = f"{suggestion.reason} Measured in {pairs} of fresh processes."
        if outcome.used_contended_rounds:
            reason += f" {UNDER_LOAD}"
        site, patch, by_hand = placed(state, program, suggestion)
        if patch and by_hand:
            reason += f" Not in the patch, and measured with it: {', '.join(by_hand)}."
        advice.append(
            Advice(title=suggestion.title, gain=gain, detail=reason, site=site, patch=patch)
        )
    return tuple(sorted(advice, key=lambda entry: -entry.gain.estimate))


def placed(
    state: TunerState, program: Program, suggestion: Suggestion
) -> tuple[str | None, str | None, list[str]]:
    """Place of a suggestion in the code, its patch, and what of it the patch does not hold.

    Each change is edited where that is certain: values of configs, arguments at the line that
    builds the loader, switches in the file that calls the model. The rest is the user's, by hand.
    """
    moved = suggestion.variant.candidate.moved_from(state.best)
    seen = suggestion.run.effects
    by_hand = [f"{each.path} {each.new}" for each in moved if each.document == COMMAND_LINE]
    diffs = [config_patch(program, state, suggestion)]
    coded = [change for change in moved if change.in_code]
    arguments = [change for change in coded if REGISTRY[change.kind].switch is None]
    site = seen.loader_site if arguments else seen.model_site if coded else None
    parts = [*loader_parts(arguments, seen), *switch_parts(coded, suggestion)]
    for place in dict.fromkeys(part.file for part in parts):
        here = [part for part in parts if part.file == place]
        sure = [part for part in here if patch_at(program, place, [part])]
        patch = patch_at(program, place, sure) if sure else None
        diffs.append(patch)
        by_hand += [part.words for part in here if patch is None or part not in sure]
    return site, "".join(filter(None, diffs)) or None, by_hand


class PlacedEdit(NamedTuple):
    """A change of the code."""

    words: str
    """What the user writes."""
    file: str
    edit: Edit | None
    """None where its place is not certain."""


def loader_parts(changes: Sequence[Change], seen: Effects) -> list[PlacedEdit]:
    """Arguments of the measured loader, set together at the line that builds it."""
    values = {change.path: change.new for change in changes}
    if not values:
        return []
    file, line = place_of(seen.loader_site)
    words = ", ".join(f"{name}={value!r}" for name, value in values.items())
    edit = partial(patches.loader_edit, line, values) if line is not None else None
    return [PlacedEdit(f"`{words}`", file, edit)]


def switch_parts(changes: Sequence[Change], suggestion: Suggestion) -> list[PlacedEdit]:
    """Switches in the file that calls the model: statements first, then around its call."""
    seen = suggestion.run.effects
    file, line = place_of(seen.model_site)
    statements: list[PlacedEdit] = []
    around: list[PlacedEdit] = []
    for change in changes:
        switch = REGISTRY[change.kind].switch
        if switch is None:
            continue
        words = switch.shown(change.new)
        edit: Edit | None = None
        if line is not None and switch.statement:
            statement = switch.statement.format(value=change.new)
            edit = partial(patches.statement_edit, statement)
        elif line is not None and change.kind == "precision":
            device = (seen.device or "cpu").partition(":")[0]
            widen = any(each.one_tensor for each in suggestion.run.overrides)
            dtype = str(change.new)
            edit = partial(patches.autocast_edit, line, device, dtype, widen=widen)
        (statements if switch.statement else around).append(PlacedEdit(words, file, edit))
    # each is put right behind the imports, before those put there earlier: in the order of the text
    statements.sort(key=lambda part: part.words, reverse=True)
    return [*statements, *around]


def place_of(site: str | None) -> tuple[str, int | None]:
    """File and line of `train.py:88`; no line for what belongs to none."""
    file, _, line = (site or "").rpartition(":")
    return file, int(line) if line.isdigit() else None


def patch_at(program: Program, file: str, parts: Sequence[PlacedEdit]) -> str | None:
    """Patch of `file` with all of `parts`; None where there is no such file, or no sure edit."""
    path = program.cwd / file
    edits = [part.edit for part in parts if part.edit is not None]
    if not path.is_file() or len(edits) < len(parts):
        return None
    return patch_of(path, program.cwd, partial(patches.all_edits, edits))


def config_patch(program: Program, state: TunerState, suggestion: Suggestion) -> str | None:
    diffs = []
    for config in program.configs:
        sides = (state.best, suggestion.variant.candidate)
        old, new = (program.content(config, side).decode() for side in sides)
        diffs.append(file_patch(Path(config.name), old, new, program.cwd))
    return "".join(filter(None, diffs)) or None
