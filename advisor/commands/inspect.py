"""`gpu-advisor inspect CONFIG... [-- COMMAND]`: knobs, and how sure they are."""

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
from advisor.commands.invocation import configs_among
from advisor.commands.program_options import ProgramOptions, record_options, with_fields
from advisor.config import Document
from advisor.errors import AdvisorError, UsageError
from advisor.knobs import Findings
from advisor.knobs.registry import REGISTRY
from advisor.model import Knob, KnobClass, Phase

ONE_A_PHASE = {"batch_size", "num_workers", "grad_accum", "timesteps"}
"""Kinds with one value in each phase of a program: two values of one kind cast doubt on both."""
HEADS = ("setting", "value", "meaning", "phase", "a change", "")
MAKES_KNOWN = (
    "An option is known once it is typed with a value, or stands in a named config"
)
WIDEST = 48
"""Longest path or value in the table, in characters.

Judgement: smaller cuts the paths of nested configs, larger breaks rows in a terminal."""
RISKS: dict[KnobClass, str] = {
    "free": "keeps results",
    "training": "changes the training",
    "numeric": "changes rounding",
    "quality": "changes the product",
}
"""What a change of such a setting does to results, as the table says it."""
DEFAULT_OF_PARSER = "that of its parser"
"""Whose default an option has that was not typed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    invocation.add_flags(parser, "configs", "--json")


def run(args: argparse.Namespace, command: Sequence[str] | None) -> int:
    """Print the findings; return 0 unless nothing could be read."""
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
    """Findings of one document, or its read error."""

    findings: Findings
    document: Document | None = None
    error: AdvisorError | None = None


def inspect(paths: Sequence[Path], command: Sequence[str] | None) -> list[Inspected]:
    """Findings of configs, of those that a command names, and of the command itself.

    A single config also shows the fields that it may hold and does not, if the command's parser
    declares them. Of several configs none tells which of them the parser reads.
    """
    phase = knobs.phase_of_command(documents.of_command(command)) if command else None
    named = configs_among(command, Path()) if command else []
    files: dict[str, Path] = {}
    for path in (*paths, *named):
        files.setdefault(os.path.realpath(path), path)
    declaring = tuple(command) if command and len(files) == 1 else None
    inspected = [_of_config(path, phase, declaring) for path in files.values()]
    if command:
        inspected.append(_of_command(tuple(command), with_parser=not paths))
    return inspected


def _of_config(
    path: Path, phase: Phase | None, declaring: tuple[str, ...] | None
) -> Inspected:
    """Findings of one config; `declaring`: command whose parser tells what else it may hold."""
    try:
        document = documents.read(path)
        if declaring:
            document = with_fields(document, declaring, Path.cwd(), (), phase)
    except AdvisorError as problem:
        nothing = Findings(document=str(path), knobs=(), links=(), traps=(), outputs=())
        return Inspected(findings=nothing, error=problem)
    findings = with_phase_note(knobs.find(document, phase=phase))
    if findings.files:
        named = ", ".join(_beside(path, file) for file in findings.files)
        note = f"it names {named}, which may be inspected too"
        findings = replace(findings, notes=(*findings.notes, note))
    return Inspected(document=document, findings=findings)


def _beside(config: Path, named: str) -> str:
    """A named file as it may be typed: seen from the config if it is there, else as written."""
    path = config.parent / named
    return str(path) if path.is_file() else named


def _of_command(command: tuple[str, ...], *, with_parser: bool) -> Inspected:
    """Findings of a command line; `with_parser`: the program is run to tell its options, too."""
    options = record_options(command, Path.cwd()) if with_parser else ProgramOptions()
    document = documents.of_command(command, options.options)
    findings = with_phase_note(knobs.find(document))
    notes = list(findings.notes)
    if options.why_unknown:
        notes.append(
            f"only the typed options are known: {options.why_unknown}. `optimize` also tries "
            "what it sees as the program runs: DataLoader arguments and switches of torch. "
            f"{MAKES_KNOWN}"
        )
    elif with_parser and not findings.knobs:
        notes.append("its parser declares no option that is known as a setting")
    if options.untold:
        notes.append(f"there may be further options: {options.untold}. {MAKES_KNOWN}")
    findings = replace(findings, notes=tuple(notes))
    return Inspected(document=document, findings=findings)


def with_phase_note(findings: Findings) -> Findings:
    """With a note on knobs whose phase is only assumed, where the phase decides on the risk."""
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
    """Why a knob may not be what its name says; None if nothing speaks against the name."""
    if knob.value is None or knob.value in ("", "auto", "???"):
        return "its name says so, and its value stands elsewhere"
    for other in findings.knobs:
        same = (other.kind, other.phase) == (knob.kind, knob.phase) and other.editable
        if same and knob.kind in ONE_A_PHASE and other.value != knob.value:
            return f"its name says so, and {other.path} has another value"
    return None


def is_default(knob: Knob, document: Document | None) -> bool:
    """True for an option that was not typed: its value is the default of the program's parser."""
    scalar = document.scalars.get(knob.path) if document else None
    return scalar is not None and not scalar.given


def as_json(inspected: Sequence[Inspected]) -> dict[str, Any]:
    """What `--json` prints: knobs, look-alikes and links of all documents, and each document."""
    content: dict[str, Any] = {"knobs": [], "traps": [], "links": [], "documents": []}
    for one in inspected:
        findings = one.findings
        read = {
            "document": findings.document,
            "format": one.document.format if one.document else None,
            "outputs": findings.outputs,
            "notes": findings.notes,
            "error": str(one.error) if one.error else None,
        }
        content["documents"].append(read)
        content["knobs"] += [_knob(knob, findings, one.document) for knob in findings.knobs]
        content["traps"] += map(asdict, findings.traps)
        content["links"] += map(asdict, findings.links)
    return content


def _knob(knob: Knob, findings: Findings, document: Document | None) -> dict[str, Any]:
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
    """Table of one document, with remarks."""
    findings = one.findings
    if one.error is not None:
        return f"{findings.document}\n  not read: {one.error}"
    rows = [
        _row(
            knob,
            is_default=is_default(knob, one.document),
            is_assumed=knob.path in findings.assumed,
        )
        for knob in findings.knobs
    ]
    table = output.table([HEADS, *rows], indent="  ") if rows else ["  no knobs"]
    lines = [findings.document, *table]
    lines += [
        f"  doubtful  {k.path}: {objection}"
        for k in findings.knobs
        if (objection := doubt(k, findings))
    ]
    lines += [f"  note  {note}" for note in findings.notes]
    if findings.traps or findings.links:
        counts = f"look-alikes: {len(findings.traps)}, constraints: {len(findings.links)}"
        lines.append(f"  {counts} (--json lists them)")
    return "\n".join(lines)


def _row(knob: Knob, *, is_default: bool, is_assumed: bool) -> tuple[str, ...]:
    """Cells of one knob, under HEADS; a batch says its unit where that is not the sample."""
    value = json.dumps(knob.value, ensure_ascii=False)
    unit = " ".join(filter(None, (knob.scope, knob.unit)))
    if knob.kind == "batch_size" and unit != "sample":
        value = f"{value} ({unit})"
    remarks = [f"a default: {DEFAULT_OF_PARSER}"] if is_default else []
    if not knob.editable:
        remarks.append(f"not editable: {knob.frozen}")
    words = REGISTRY[knob.kind].words
    path = knob.path if len(knob.path) <= WIDEST else f"...{knob.path[3 - WIDEST :]}"
    risk = RISKS[knob.knob_class]
    phase = f"{knob.phase} (assumed)" if is_assumed else knob.phase
    return (path, value[:WIDEST], words, phase, risk, ", ".join(remarks))
