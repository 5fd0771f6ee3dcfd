"""Advice on confirmed suggestions, with patches where the place is certain."""

from functools import partial
from pathlib import Path

from advisor import numbers
from advisor.executor.comparison import UNDER_LOAD
from advisor.executor.requests import Program
from advisor.model import Advice, Interval, Run
from advisor.patches import patches, python_source
from advisor.patches.python_source import Edit
from advisor.tuner.code_suggestions import is_confirmed, switch_of
from advisor.tuner.state import Suggestion, TunerState


def proven_advice(state: TunerState, program: Program) -> tuple[Advice, ...]:
    """Confirmed suggestions, the largest gain first."""
    found = []
    for suggestion in state.suggestions:
        outcome = suggestion.outcome
        gain = outcome.interval(state.context.objective) if outcome else None
        if gain is not None and is_confirmed(state, suggestion):
            found.append(advice_of(state, program, suggestion, gain))
    return tuple(sorted(found, key=lambda each: -each.gain.estimate))


def advice_of(
    state: TunerState, program: Program, suggestion: Suggestion, gain: Interval
) -> Advice:
    """One confirmed suggestion, with its place and its patch."""
    outcome = suggestion.outcome
    reason = f"{suggestion.reason} Measured in {numbers.many(gain.n, 'interleaved pair')} of fresh "
    reason += "processes."
    if outcome is not None and outcome.used_contended_rounds:
        reason += f" {UNDER_LOAD}"
    site, patch = None, None
    if suggestion.knob is not None:
        patch = config_patch(program, state, suggestion)
    else:
        seen = state.incumbent_run.effects
        site = seen.loader_site if suggestion.arguments else seen.model_site
        path, line = located(program.cwd, site)
        if path is not None:
            edit = code_edit(line, suggestion, state.incumbent_run)
            patch = python_source.patch_of(path, program.cwd, edit) if edit else None
    return Advice(title=suggestion.title, gain=gain, detail=reason, site=site, patch=patch)


def config_patch(program: Program, state: TunerState, suggestion: Suggestion) -> str | None:
    """The config's change as a diff."""
    patches = []
    for config in program.configs:
        sides = (state.best, suggestion.variant.candidate)
        old, new = (program.content(config, side).decode() for side in sides)
        if config.path is not None:
            patches.append(python_source.file_patch(config.path, old, new, program.cwd))
    return "".join(filter(None, patches)) or None


def code_edit(line: int, suggestion: Suggestion, original: Run) -> Edit | None:
    """Edit at `line` that does what was tried; None without one."""
    if suggestion.arguments:
        return partial(patches.loader_edit, line, dict(suggestion.arguments))
    switch, value = switch_of(suggestion.title)
    if switch.statement:
        return partial(patches.statement_edit, switch.statement.format(value=value))
    if switch.name == "autocast":
        whatif = suggestion.run.whatif
        device = (original.effects.device or "cpu").partition(":")[0]
        widen = whatif is not None and whatif.one_tensor is True
        return partial(patches.autocast_edit, line, device, value, widen=widen)
    return None


def located(cwd: Path, site: str | None) -> tuple[Path | None, int]:
    """File and line of an existing `file.py:line`."""
    name, _, line = (site or "").rpartition(":")
    path = cwd / name
    return (path, int(line)) if name and line.isdigit() and path.is_file() else (None, 0)
