"""`gpu-advisor inspect [CONFIG ...] [-- COMMAND]`: knobs, and how sure they are.

Nothing is measured. A command's program may be started up to where it parses its arguments, since
its parser declares what nobody typed. gpu-advisor.toml is not read: what it says of phases and of
settings to keep shows in `optimize` alone.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from advisor import config as documents, knobs
from advisor.commands import invocation, output
from advisor.commands.program_options import ProgramOptions, record_options, with_fields
from advisor.config import Document
from advisor.errors import AdvisorError, UsageError
from advisor.knobs import Findings
from advisor.knobs.registry import REGISTRY
from advisor.model import Knob, KnobClass, Phase

ONE_VALUE_A_PHASE = {"batch_size", "num_workers", "grad_accum", "timesteps"}
"""Kinds of which a program has one value in each phase: of two, one may be another setting."""
HEADS = ("setting", "value", "meaning", "phase", "a change", "")
"""Heads of the table, one for each cell of `_row`; remarks have none."""
UNKNOWN_OPTION_HINT = (
    "An option is known once it is typed with a value, or stands in a named config"
)
"""What a user can do about an option that no parser told, after which `inspect` shows it."""
WIDEST_CELL = 48
"""Longest path or value in the table, in characters; what is longer is cut.

Judgement: smaller cuts the paths of nested configs, larger breaks rows in a terminal."""
RISKS: dict[KnobClass, str] = {
    "free": "keeps results",
    "training": "changes the training",
    "numeric": "changes rounding",
    "quality": "changes the product",
}
"""What another value of a setting does to results, by its class, as the table says it."""
DEFAULT_OF_PARSER = "that of its parser"
"""Whose default a value is that the user did not write, as the table and `default_of` say it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    invocation.add_flags(parser, "configs", "--json")


def run(args: argparse.Namespace, command: Sequence[str] | None) -> int:
    """Print what was found in each document, and on stderr why one could not be read.

    Returns 0, or the first error's code if no document could be read. Raises UsageError without
    a config and a command, and the error itself where only one document was named, unless it
    goes into the JSON.
    """
    if not args.configs and not command:
        msg = "Nothing to inspect: name a config, or `-- YOUR COMMAND`."
        raise UsageError(msg)
    inspected = inspect(args.configs, command)
    errors = [one.error for one in inspected if one.error]
    if len(errors) == len(inspected) == 1 and not args.json:
        raise errors[0]
    output.show(as_json(inspected), "\n\n".join(map(section, inspected)), as_json=args.json)
    sys.stderr.writelines(f"gpu-advisor: {message}\n" for message in errors)
    return errors[0].exit_code if len(errors) == len(inspected) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """Findings of one document, or why it could not be read."""

    findings: Findings
    """Empty but for the document's name, if it could not be read."""
    document: Document | None = None
    """None exactly where there is an `error`."""
    error: AdvisorError | None = None


def inspect(paths: Sequence[Path], command: Sequence[str] | None) -> list[Inspected]:
    """Findings of configs, of those that a command names, and of the command itself.

    A single config also shows settings that it may gain, as the parser of the command's program
    declares them. With several configs it is not known which of them that parser reads. The
    program may be started once for them, and is for its options if the user named no config.
    """
    phase = knobs.phase_of_command(documents.of_command(command)) if command else None
    named = invocation.configs_among(command, Path()) if command else []
    configs: dict[str, Path] = {}  # by real path, since a config may be named twice
    for path in (*paths, *named):
        configs.setdefault(os.path.realpath(path), path)
    parsed_by = tuple(command) if command and len(configs) == 1 else None
    inspected = [_of_config(path, phase, parsed_by) for path in configs.values()]
    if command:
        inspected.append(_of_command(tuple(command), with_parser=not paths))
    return inspected


def _of_config(
    path: Path, phase: Phase | None, parsed_by: tuple[str, ...] | None
) -> Inspected:
    """Findings of one config, or why it could not be read.

    `phase`: what the command says; None: the config alone tells. `parsed_by`: command whose
    program parses this config, and so may declare what else it may hold; None: not known.
    """
    try:
        document = documents.read(path)
        if parsed_by:
            document = with_fields(document, parsed_by, Path.cwd(), (), phase)
    except AdvisorError as problem:
        nothing = Findings(document=str(path), knobs=(), links=(), traps=(), outputs=())
        return Inspected(findings=nothing, error=problem)
    findings = with_phase_note(knobs.find(document, phase=phase))
    if findings.files:
        named = ", ".join(_path_to_type(file, path) for file in findings.files)
        note = f"it names {named}, which may be inspected too"
        findings = replace(findings, notes=(*findings.notes, note))
    return Inspected(document=document, findings=findings)


def _path_to_type(named: str, config: Path) -> str:
    """Path of a file that `config` names: beside the config if it is there, else as written."""
    path = config.parent / named
    return str(path) if path.is_file() else named


def _of_command(command: tuple[str, ...], *, with_parser: bool) -> Inspected:
    """Findings of a command line.

    `with_parser`: the program is started until it parses its arguments, to tell options that
    nobody typed. Otherwise only typed ones are known.
    """
    options = record_options(command, Path.cwd()) if with_parser else ProgramOptions()
    document = documents.of_command(command, options.options)
    findings = with_phase_note(knobs.find(document))
    notes = list(findings.notes)
    if options.why_unknown:
        notes.append(
            f"only the typed options are known: {options.why_unknown}. `optimize` also tries "
            "what it sees as the program runs: DataLoader arguments and switches of torch. "
            f"{UNKNOWN_OPTION_HINT}"
        )
    elif with_parser and not findings.knobs:
        notes.append("its parser declares no option that is known as a setting")
    if options.untold:
        notes.append(
            f"there may be further options: {options.untold}. {UNKNOWN_OPTION_HINT}"
        )
    findings = replace(findings, notes=tuple(notes))
    return Inspected(document=document, findings=findings)


def with_phase_note(findings: Findings) -> Findings:
    """With a note on knobs whose assumed phase decides what a change does to results.

    A batch is such a knob: another one keeps the results of a test and changes a training.
    """
    names = [
        findings.name_of(knob.path)
        for knob in findings.knobs
        if knob.path in findings.assumed
        and REGISTRY[knob.kind].class_in("test") != knob.knob_class
    ]
    if not names:
        return findings
    note = (
        f"nothing says that this is a training: it is assumed for {', '.join(names)}, until "
        "`optimize` has seen the program"
    )
    return replace(findings, notes=(*findings.notes, note))


def doubt(knob: Knob, findings: Findings) -> str | None:
    """What speaks against a knob, as a clause; None if nothing does.

    Its value may be set elsewhere, or another knob of its kind and phase has another value. One
    that cannot be edited casts no doubt on others.
    """
    is_unset = knob.value is None and not REGISTRY[knob.kind].none_is_a_value
    if is_unset or knob.value in ("", "auto", "???"):
        return "its name says so, and its value stands elsewhere"
    if knob.kind not in ONE_VALUE_A_PHASE:
        return None
    for other in findings.knobs:
        is_alike = (other.kind, other.phase) == (knob.kind, knob.phase)
        if is_alike and other.editable and other.value != knob.value:
            return f"its name says so, and {other.path} has another value"
    return None


def is_default(knob: Knob, document: Document | None) -> bool:
    """True for an option that was not typed, and for a setting that a config may gain.

    Its value is the default that the program's parser declares.
    """
    scalar = document.scalars.get(knob.path) if document else None
    return scalar is not None and not scalar.given


def as_json(inspected: Sequence[Inspected]) -> dict[str, Any]:
    """What `--json` prints: what was found in all documents, and a few words on each of them.

    `traps` are look-alikes of knobs, `links` are knobs that move together or not at all.
    """
    content: dict[str, Any] = {"knobs": [], "traps": [], "links": [], "documents": []}
    for one in inspected:
        findings = one.findings
        entry = {
            "document": findings.document,
            "format": one.document.format if one.document else None,
            "outputs": findings.outputs,
            "notes": findings.notes,
            "error": str(one.error) if one.error else None,
        }
        content["documents"].append(entry)
        content["knobs"] += [
            _knob_entry(knob, findings, one.document) for knob in findings.knobs
        ]
        content["traps"] += map(asdict, findings.traps)
        content["links"] += map(asdict, findings.links)
    return content


def _knob_entry(
    knob: Knob, findings: Findings, document: Document | None
) -> dict[str, Any]:
    """A knob in the JSON: `why` it is one and may not be edited, `sure`: likely or doubtful."""
    objection = doubt(knob, findings)
    frozen = "" if knob.frozen is None else f"; not editable: {knob.frozen}"
    return {
        "document": knob.document,
        "path": knob.path,
        "kind": knob.kind,
        "phase": knob.phase,
        "class": knob.knob_class,
        "unit": knob.unit,
        "scope": knob.scope,
        "value": knob.value,
        "default_of": DEFAULT_OF_PARSER if is_default(knob, document) else None,
        "editable": knob.editable,
        "why": f"{knob.why}{frozen}",
        "sure": "doubtful" if objection else "likely",
        "sure_why": objection or "its name and value say so",
    }


def section(one: Inspected) -> str:
    """Text on one document: a table of its knobs, doubts, notes and counts; or its error."""
    findings = one.findings
    if one.error is not None:
        return f"{findings.document}\n  not read: {one.error}"
    rows = [
        _row(
            knob,
            by_default=is_default(knob, one.document),
            phase_assumed=knob.path in findings.assumed,
        )
        for knob in findings.knobs
    ]
    table = output.table([HEADS, *rows], indent="  ") if rows else ["  no knobs"]
    lines = [findings.document, *table]
    lines += [
        f"  doubtful  {knob.path}: {objection}"
        for knob in findings.knobs
        if (objection := doubt(knob, findings))
    ]
    lines += [f"  note  {note}" for note in findings.notes]
    if findings.traps or findings.links:
        counts = f"look-alikes: {len(findings.traps)}, constraints: {len(findings.links)}"
        lines.append(f"  {counts} (--json lists them)")
    return "\n".join(lines)


def _row(knob: Knob, *, by_default: bool, phase_assumed: bool) -> tuple[str, ...]:
    """Cells of one knob, under HEADS.

    A batch tells its scope and unit, `8 (device token)`, unless it is a number of samples.
    """
    value = json.dumps(knob.value, ensure_ascii=False)
    unit = " ".join(filter(None, (knob.scope, knob.unit)))
    if knob.kind == "batch_size" and unit != "sample":
        value = f"{value} ({unit})"
    remarks = [f"a default: {DEFAULT_OF_PARSER}"] if by_default else []
    if not knob.editable:
        remarks.append(f"not editable: {knob.frozen}")
    words = REGISTRY[knob.kind].words
    path = knob.path
    if len(path) > WIDEST_CELL:  # its end says what it is
        path = f"...{path[len('...') - WIDEST_CELL :]}"
    risk = RISKS[knob.knob_class]
    phase = f"{knob.phase} (assumed)" if phase_assumed else knob.phase
    return (path, value[:WIDEST_CELL], words, phase, risk, ", ".join(remarks))
