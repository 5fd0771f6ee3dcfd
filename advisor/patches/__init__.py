"""Advice on confirmed suggestions, with patches where the place is certain."""

from functools import partial
from pathlib import Path

from advisor import numbers
from advisor.executor.comparison import UNDER_LOAD
from advisor.executor.requests import Program
from advisor.model import Advice, Run
from advisor.patches import patches
from advisor.patches.patches import Edit, file_patch, patch_of
from advisor.tuner.code_suggestions import SWITCHES, is_confirmed
from advisor.tuner.state import Suggestion, TunerState


def proven_advice(state: TunerState, program: Program) -> tuple[Advice, ...]:
    """Confirmed suggestions, largest gain first."""
    found = []
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
        found.append(
            Advice(title=suggestion.title, gain=gain, detail=reason, site=site, patch=patch)
        )
    return tuple(sorted(found, key=lambda each: -each.gain.estimate))


def placed(
    state: TunerState, program: Program, suggestion: Suggestion
) -> tuple[str | None, str | None]:
    """Place of a suggestion in the code, and its patch."""
    if suggestion.knob is not None:
        return None, config_patch(program, state, suggestion)
    seen = state.incumbent_run.effects
    site = seen.loader_site if suggestion.arguments else seen.model_site
    name, _, line = (site or "").rpartition(":")
    path = program.cwd / name
    if not line.isdigit() or not path.is_file():
        return site, None
    edit = code_edit(int(line), suggestion, state.incumbent_run)
    return site, patch_of(path, program.cwd, edit) if edit else None


def config_patch(program: Program, state: TunerState, suggestion: Suggestion) -> str | None:
    diffs = []
    for config in program.configs:
        sides = (state.best, suggestion.variant.candidate)
        old, new = (program.content(config, side).decode() for side in sides)
        diffs.append(file_patch(Path(config.name), old, new, program.cwd))
    return "".join(filter(None, diffs)) or None


def code_edit(line: int, suggestion: Suggestion, original: Run) -> Edit | None:
    """Edit at `line` that does what was tried; None without one."""
    if suggestion.arguments:
        return partial(patches.loader_edit, line, dict(suggestion.arguments))
    switch = next(each for each in SWITCHES if each.name == suggestion.switch)
    value = suggestion.variant.candidate.in_code.changes[-1].new
    if switch.statement:
        return partial(patches.statement_edit, switch.statement.format(value=value))
    if switch.name == "autocast":
        device = (original.effects.device or "cpu").partition(":")[0]
        widen = any(each.one_tensor for each in suggestion.run.overrides)
        return partial(patches.autocast_edit, line, device, str(value), widen=widen)
    return None
