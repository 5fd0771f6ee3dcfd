"""Advice on confirmed suggestions, with patches where the place is certain."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from advisor import numbers
from advisor.executor.comparison import UNDER_LOAD
from advisor.executor.requests import COMMAND_LINE, Program
from advisor.model import Advice, Effects, JsonScalar
from advisor.patches import patches
from advisor.patches.patches import Edit, file_patch, patch_of
from advisor.tuner.code_suggestions import SWITCHES, is_confirmed
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
        site, patch = placed(state, program, suggestion)
        advice.append(
            Advice(title=suggestion.title, gain=gain, detail=reason, site=site, patch=patch)
        )
    return tuple(sorted(advice, key=lambda entry: -entry.gain.estimate))


def placed(
    state: TunerState, program: Program, suggestion: Suggestion
) -> tuple[str | None, str | None]:
    """Place of a suggestion in the code, and its patch; none that would hold a part of it."""
    seen = state.incumbent_run.effects
    moved = suggestion.variant.candidate.moved_from(state.best)
    coded = {change.path: change.new for change in moved if change.in_code}
    site = seen.model_site if suggestion.switch else seen.loader_site if coded else None
    if any(change.document == COMMAND_LINE for change in moved):
        return site, None
    written = config_patch(program, state, suggestion)
    if not coded:
        return site, written
    edit = code_edit(line_of(site), suggestion, coded, seen)
    patch = site_patch(program, site, edit)
    return site, patch and (written or "") + patch


def line_of(site: str | None) -> int | None:
    """Line of `train.py:88`; None for what belongs to no line."""
    line = (site or "").rpartition(":")[2]
    return int(line) if line.isdigit() else None


def site_patch(program: Program, site: str | None, edit: Edit | None) -> str | None:
    """Patch of the file of `site`; None where there is no such file, or no sure edit."""
    path = program.cwd / (site or "").rpartition(":")[0]
    return patch_of(path, program.cwd, edit) if edit and path.is_file() else None


def config_patch(program: Program, state: TunerState, suggestion: Suggestion) -> str | None:
    diffs = []
    for config in program.configs:
        sides = (state.best, suggestion.variant.candidate)
        old, new = (program.content(config, side).decode() for side in sides)
        diffs.append(file_patch(Path(config.name), old, new, program.cwd))
    return "".join(filter(None, diffs)) or None


def code_edit(
    line: int | None, suggestion: Suggestion, coded: Mapping[str, JsonScalar], seen: Effects
) -> Edit | None:
    """Edit at `line` that does what was tried; None without one."""
    if line is None:
        return None
    if not suggestion.switch:
        return partial(patches.loader_edit, line, coded)
    switch = next(switch for switch in SWITCHES if switch.name == suggestion.switch)
    value = coded[switch.name]
    if switch.statement:
        return partial(patches.statement_edit, switch.statement.format(value=value))
    if switch.name == "autocast":
        device = (seen.device or "cpu").partition(":")[0]
        widen = any(override.one_tensor for override in suggestion.run.overrides)
        return partial(patches.autocast_edit, line, device, str(value), widen=widen)
    return None
