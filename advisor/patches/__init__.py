"""Advice on suggestions whose gain is proven, with a patch as far as their place is certain."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from advisor import numbers
from advisor.executor.comparison import UNDER_LOAD
from advisor.executor.requests import COMMAND_LINE, Program
from advisor.knobs.registry import REGISTRY
from advisor.model import Advice, Change, Effects, Run
from advisor.patches import fields, patches
from advisor.patches.patches import Edit, file_patch, patch_of
from advisor.tuner.code_suggestions import is_confirmed
from advisor.tuner.outcomes import Suggestion
from advisor.tuner.state import TunerState


def proven_advice(state: TunerState, program: Program) -> tuple[Advice, ...]:
    """Advice on each suggestion whose rounds proved a gain, the largest gain first."""
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
        placement = place(state, program, suggestion)
        site, patch = placement.site, placement.patch
        if patch and placement.by_hand:
            left_out = ", ".join(placement.by_hand)
            reason += f" Not in the patch, and measured with it: {left_out}."
        if patch:
            reason += "".join(f" {caveat}" for caveat in placement.caveats)
        advice.append(
            Advice(title=suggestion.title, gain=gain, detail=reason, site=site, patch=patch)
        )
    return tuple(sorted(advice, key=lambda entry: -entry.gain.estimate))


class Placement(NamedTuple):
    """Where a suggestion belongs in the user's files."""

    site: str | None
    """Line that it is about, `train.py:88`; None if all of it is in configs, or it was not seen."""
    patch: str | None
    """Diff of what has a certain place, configs included; None where nothing has."""
    by_hand: list[str]
    """Words for each change that the patch does not hold."""
    caveats: list[str]
    """Sentences on what else may set a value of the patch."""


def place(state: TunerState, program: Program, suggestion: Suggestion) -> Placement:
    """Find the place of each change of a suggestion, and patch those whose place is certain.

    That can be values of configs, arguments at the line that builds the loader, and switches in
    the file that calls the model. Edits of one file are tried one by one, then made together:
    where they do not go together, all of that file's are left to the user.
    """
    changes = suggestion.variant.candidate.moved_from(state.best)
    seen = suggestion.run.effects
    by_hand = [
        f"{change.path} {change.new}"
        for change in changes
        if change.document == COMMAND_LINE
    ]
    diffs = [config_patch(program, state, suggestion)]
    coded = [change for change in changes if change.in_code]
    arguments = [change for change in coded if REGISTRY[change.kind].switch is None]
    site = seen.loader_site if arguments else seen.model_site if coded else None
    edits = [*loader_edits(arguments, seen, program), *switch_edits(coded, suggestion)]
    for file in dict.fromkeys(edit.file for edit in edits):
        of_file = [edit for edit in edits if edit.file == file]
        sure = [edit for edit in of_file if patch_at(program, file, [edit])]
        patch = patch_at(program, file, sure) if sure else None
        diffs.append(patch)
        by_hand += [edit.words for edit in of_file if patch is None or edit not in sure]
    caveats = [edit.caveat for edit in edits if edit.caveat]
    return Placement(site, "".join(filter(None, diffs)) or None, by_hand, caveats)


class PlacedEdit(NamedTuple):
    """A change of the code, and the edit that makes it."""

    words: str
    """What the user writes."""
    file: str
    """Path of the changed file from the program's working folder; empty where it was not seen."""
    edit: Edit | None
    """None where its place is not certain."""
    caveat: str = ""
    """Sentence on what else may set the value; empty if nothing is known to."""


def loader_edits(
    changes: Sequence[Change], seen: Effects, program: Program
) -> list[PlacedEdit]:
    """Edits that set all changed arguments of the measured loader, each where its value is set.

    That is where the loader is built, or where the field is set that it reads there. All of them
    or none, since one may need another: a loader without workers refuses some arguments.
    """
    values = {change.path: change.new for change in changes}
    if not values:
        return []
    file, line = file_and_line(seen.loader_site)
    words = f"`{', '.join(f'{name}={value!r}' for name, value in values.items())}`"
    if line is None:
        return [PlacedEdit(words, file, None)]
    read = patches.fields_given(program.cwd / file, program.cwd, line, values)
    edits: list[PlacedEdit] = []
    for change in changes:
        if change.path not in read:
            continue
        home = fields.sole_home(read[change.path], change.old, program.cwd)
        if home is None:
            return [PlacedEdit(words, file, None)]
        edit = partial(patches.field_edit, read[change.path], change.new)
        place = home.relative_to(program.cwd).as_posix()
        words_of_one = f"`{change.path}={change.new!r}`"
        caveat = caveat_on(read[change.path], program)
        edits.append(PlacedEdit(words_of_one, place, edit, caveat))
    if rest := {name: value for name, value in values.items() if name not in read}:
        edits.append(PlacedEdit(words, file, partial(patches.loader_edit, line, rest)))
    if all(patch_at(program, placed.file, [placed]) for placed in edits):
        return edits
    return [PlacedEdit(words, file, None)]


def caveat_on(field: str, program: Program) -> str:
    """Sentence on a config that has the key of a patched field; empty without one."""
    configs = fields.configs_with(field, program.cwd)
    if not configs:
        return ""
    name = configs[0].relative_to(program.cwd).as_posix()
    return f"`{name}` has `{field}` too: if the program reads it there, that value wins."


def switch_edits(changes: Sequence[Change], suggestion: Suggestion) -> list[PlacedEdit]:
    """Edits of torch's switches in the file that calls the model; other changes have none.

    A switch is a statement behind the imports, or stands around the model's call, as autocast.
    Statements come first: each is put right behind the imports, before those put there earlier,
    so they are made in the reverse order of their text.
    """
    file, line = file_and_line(suggestion.run.effects.model_site)
    statements: list[PlacedEdit] = []
    around: list[PlacedEdit] = []
    for change in changes:
        switch = REGISTRY[change.kind].switch
        if switch is None:
            continue
        edit: Edit | None = None
        if line is not None and switch.statement:
            statement = switch.statement.format(value=change.new)
            edit = partial(patches.statement_edit, statement)
        elif line is not None and change.kind == "precision":
            edit = autocast_at(line, str(change.new), suggestion.run)
        placed = PlacedEdit(switch.shown(change.new), file, edit)
        (statements if switch.statement else around).append(placed)
    statements.sort(key=lambda placed: placed.words, reverse=True)
    return [*statements, *around]


def autocast_at(line: int, dtype: str, run: Run) -> Edit:
    """Edit that puts autocast around the model's call at `line`, as the probe did in `run`."""
    device = (run.effects.device or "cpu").partition(":")[0]
    widen = any(outcome.one_tensor for outcome in run.overrides)
    return partial(patches.autocast_edit, line, device, dtype, widen=widen)


def file_and_line(site: str | None) -> tuple[str, int | None]:
    """File and line of a site `train.py:88`; no line where the site names none, or is None."""
    file, _, line = (site or "").rpartition(":")
    return file, int(line) if line.isdigit() else None


def patch_at(program: Program, file: str, placed: Sequence[PlacedEdit]) -> str | None:
    """Patch of `file` with all of the edits; None where the file or one of them is missing."""
    path = program.cwd / file
    edits = [entry.edit for entry in placed if entry.edit is not None]
    if not path.is_file() or len(edits) < len(placed):
        return None
    return patch_of(path, program.cwd, partial(patches.all_edits, edits))


def config_patch(program: Program, state: TunerState, suggestion: Suggestion) -> str | None:
    """Patch of the configs from the best candidate to the suggestion; None if they are equal."""
    diffs = []
    for config in program.configs:
        sides = (state.best, suggestion.variant.candidate)
        old, new = (program.content(config, side).decode() for side in sides)
        diffs.append(file_patch(Path(config.name), old, new, program.cwd))
    return "".join(filter(None, diffs)) or None
