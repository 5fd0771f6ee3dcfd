"""`gpu-advisor inspect CONFIG... [-- COMMAND]`: knobs, and how sure they are.

Runs nothing, unless `--run` asks for the experiment.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor import config as documents
from advisor import knobs
from advisor.commands import program_options
from advisor.commands.invocation import configs_among, why_not_taken
from advisor.config.formats import SUFFIXES
from advisor.errors import AdvisorError, ConfigUnreadableError, UsageError
from advisor.knobs.candidate_values import multiple_of
from advisor.knobs.confidence import how_sure
from advisor.knobs.discovery import joined
from advisor.knobs.registry import REGISTRY
from advisor.model import KnobConstraint
from advisor.report import sentences
from advisor.runner import limits

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from advisor.commands.inspect_run import Shown
    from advisor.config import Document
    from advisor.knobs import Findings
    from advisor.knobs.confidence import Sureness
    from advisor.model import Knob, KnobClass, Phase

COMMAND_LINE = "command line"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """Findings of one document, or its read error."""

    name: str
    document: Document | None = None
    findings: Findings | None = None
    error: AdvisorError | None = None
    named_by: str | None = None
    """The document that names this one, if the user did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Everything that was inspected, in order."""

    documents: tuple[Inspected, ...]
    shown: Shown | None = None
    """Observations of runs, where some were asked for."""

    @property
    def findings(self) -> tuple[Findings, ...]:
        """Findings of the readable documents."""
        return tuple(one.findings for one in self.documents if one.findings)


def inspect(
    paths: Sequence[Path], command: Sequence[str] | None = None, shown: Shown | None = None
) -> Inspection:
    """Find the knobs of configs and of a command line.

    Configs that these name are included. A folder stands for the configs in it. A file that cannot
    be read or parsed is kept with its error, and the others go on. `shown` adds what runs showed;
    nothing is run here.
    """
    phase = knobs.phase_of_command(documents.of_command(command)) if command else None
    seen: set[str] = set()
    inspected: list[Inspected] = []
    waiting: list[tuple[Path, str | None]] = [(path, None) for path in _expanded(paths)]
    if command:
        waiting += [(path, COMMAND_LINE) for path in configs_among(command, Path())]
    while waiting:
        path, named_by = waiting.pop(0)
        real = os.path.realpath(path)
        if real in seen:
            continue
        seen.add(real)
        one = _inspect(path, named_by, phase, shown)
        inspected.append(one)
        if one.findings:
            waiting[:0] = [(file, one.name) for file in _files_named(one.findings, path)]
    if command:
        known = program_options.recorded(tuple(command), Path.cwd()) if not paths else None
        document = documents.of_command(command, known.options if known else ())
        found = _with_overrides(_and_followed(document, knobs.find(document), shown), inspected)
        if known and known.why_unknown:
            note = f"only the typed options are known: {known.why_unknown}"
            found = replace(found, notes=(*found.notes, note))
        inspected.append(Inspected(name=COMMAND_LINE, document=document, findings=found))
    return Inspection(documents=tuple(inspected), shown=shown)


def _and_followed(document: Document, found: Findings, shown: Shown | None) -> Findings:
    if shown is None:
        return found
    return joined(document, found, shown.discovery.followed, shown.phase)


def _inspect(
    path: Path, named_by: str | None, phase: Phase | None, shown: Shown | None
) -> Inspected:
    try:
        if path.is_dir():
            kinds = ", ".join(SUFFIXES)
            msg = f"{path} is a folder without a config ({kinds}) in it. Name the config itself."
            raise ConfigUnreadableError(msg)
        document = documents.read(path)
    except AdvisorError as problem:
        return Inspected(name=str(path), error=problem, named_by=named_by)
    findings = _and_followed(document, knobs.find(document, phase=phase), shown)
    return Inspected(name=str(path), document=document, findings=findings, named_by=named_by)


def _with_overrides(flags: Findings, configs: Iterable[Inspected]) -> Findings:
    """Link a command's overrides to the config's keys."""
    keys = [knob for one in configs if one.findings for knob in one.findings.knobs]
    overrides = [
        KnobConstraint(
            kind="override",
            document=flags.document,
            paths=(flag.path,),
            why=f"may override {key.document}: {key.path}; a measured run shows which one wins",
        )
        for flag in flags.knobs
        for key in keys
        if key.kind == flag.kind and (key.phase == flag.phase or "any" in (key.phase, flag.phase))
    ]
    return replace(flags, links=(*flags.links, *overrides))


def _expanded(paths: Iterable[Path]) -> Iterator[Path]:
    """Files, and the configs below each folder.

    An empty folder stays, to be refused.
    """
    for path in paths:
        inside = sorted(p for p in path.rglob("*") if _is_config(p)) if path.is_dir() else []
        yield from inside or [path]


def _is_config(path: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.parts)
    known = path.suffix.lower() in SUFFIXES and path.suffix != ".py"  # most are programs
    return known and not hidden and path.is_file()


def _files_named(findings: Findings, path: Path) -> list[Path]:
    """Existing configs that the document at `path` names.

    Paths are relative to it or to the working directory.
    """
    found = []
    for reference in findings.references:
        for folder in (path.parent, Path()):
            file = folder / reference.file
            if file.suffix.lower() in SUFFIXES and file.is_file():
                found.append(file)
                break
    return found


# --- as JSON ------------------------------------------------------------------------------------


def as_json(inspection: Inspection) -> dict[str, Any]:
    """Format as one JSON object of four lists.

    They are `knobs`, `traps`, `links` and `documents`.
    """
    found = inspection.findings
    result = {
        "knobs": [
            _knob(knob, default_of(knob, one.document), _sureness(knob, inspection))
            for one in inspection.documents
            if one.findings
            for knob in one.findings.knobs
        ],
        "traps": [
            {"document": t.document, "path": t.path, "why": t.why}
            for one in found
            for t in one.traps
        ],
        "links": [
            {"kind": link.kind, "document": link.document, "paths": link.paths, "why": link.why}
            for one in found
            for link in one.links
        ],
        "documents": [_document(one) for one in inspection.documents],
    }
    return result | ({"experiment": _experiment(inspection.shown)} if inspection.shown else {})


def _sureness(knob: Knob, inspection: Inspection) -> Sureness:
    shown = inspection.shown
    if shown is None:
        return how_sure(knob, inspection.findings)
    return how_sure(knob, inspection.findings, shown.seen, shown.phases)


def _experiment(shown: Shown) -> dict[str, Any]:
    found = shown.discovery
    return {
        "processes": found.processes,
        "batch_at": dataclasses.asdict(place) if (place := shown.seen.batch_at) else None,
        "followed": [
            {**dataclasses.asdict(each), "told": sentences.followed(each, shown.unit)}
            for each in found.followed
        ],
        **{
            name: [
                {"document": s.document, "path": s.path, "value": s.value, "kinds": sorted(s.kinds)}
                for s in suspected
            ]
            for name, suspected in (
                ("unfollowed", found.unfollowed),
                ("unsettled", found.unsettled),
            )
        },
    }


def _knob(knob: Knob, default: str | None, sureness: Sureness) -> dict[str, Any]:
    return {
        "document": knob.document,
        "path": knob.path,
        "kind": knob.kind,
        "phase": knob.phase,
        "class": knob.knob_class,
        "unit": knob.unit,
        "scope": knob.scope,
        "value": knob.value,
        "default_of": default,
        "editable": knob.editable,
        "why": knob.why,
        "sure": sureness.level,
        "sure_why": sentences.sure(sureness),
    }


def _document(one: Inspected) -> dict[str, Any]:
    return {
        "document": one.name,
        "format": one.document.format if one.document else None,
        "named_by": one.named_by,
        "outputs": list(one.findings.outputs) if one.findings else [],
        "notes": list(one.findings.notes) if one.findings else [],
        "error": str(one.error) if one.error else None,
    }


# --- for people ---------------------------------------------------------------------------------

_HEADS = ("setting", "value", "meaning", "phase", "a change", "sure", "editable")
_WIDEST = (48, 24, 40, 5, 20, 8, 400)
"""The last column may hold a reason, which is of use as a whole only."""
_RISKS: dict[KnobClass, str] = {
    "free": "keeps results",
    "training": "changes the training",
    "numeric": "changes rounding",
    "quality": "changes the product",
}


def as_text(inspection: Inspection, *, details: bool = False) -> str:
    """Format a table a document, then the observations.

    `details`: all that is known.
    """
    sections = [_section(one, inspection, details=details) for one in inspection.documents]
    sections += [_runs(inspection.shown)] if inspection.shown else []
    return "\n\n".join(sections) + "\n"


def _runs(shown: Shown) -> str:
    """The experiment: what is followed, and what is not."""
    found, place = shown.discovery, shown.seen.batch_at
    as_it_is = 1 if place is None else 2
    many = shown.processes - as_it_is
    moved = "nothing to move" if not many else f"{many} with values moved"
    lines = [f"Runs: {as_it_is} as it is, {moved}"]
    lines += [f"  {sentences.batch_place(place)}"] if place is not None else []
    lines += [f"  followed  {sentences.followed(each, shown.unit)}" for each in found.followed]
    lines += [f"  not followed  {s.path} = {s.value}" for s in found.unfollowed]
    lines += [f"  not settled  {s.path} = {s.value}" for s in found.unsettled]
    return "\n".join(lines)


def _section(one: Inspected, inspection: Inspection, *, details: bool) -> str:
    title = f"{one.name} (named by {one.named_by})" if one.named_by else one.name
    if one.findings is None:
        return f"{title}\n  not read: {one.error}"
    sure = {knob.path: _sureness(knob, inspection) for knob in one.findings.knobs}
    lines = [title, *_table(one.findings.knobs, one.document, sure)]
    lines += [
        f"  {sureness.level}  {path}: {sentences.sure(sureness)}"
        for path, sureness in sure.items()
        if sureness.level == "doubtful"
    ]
    lines += [f"  note  {note}" for note in one.findings.notes]
    traps, links = one.findings.traps, one.findings.links
    if details:
        lines += [f"  look-alike  {trap.path}: {trap.why}" for trap in traps]
        lines += [f"  {link.kind}  {', '.join(link.paths)}: {link.why}" for link in links]
    elif traps or links:
        lines.append(f"  {len(traps)} look-alikes, {len(links)} constraints: --all lists them")
    return "\n".join(lines)


def _table(
    found: Sequence[Knob], document: Document | None, sure: Mapping[str, Sureness]
) -> list[str]:
    if not found:
        return ["  no knobs"]
    rows = [_HEADS, *(_row(knob, default_of(knob, document), sure[knob.path]) for knob in found)]
    rows = [(_end_of(row[0]), *map(_cut, row[1:], _WIDEST[1:])) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def default_of(knob: Knob, document: Document | None) -> str | None:
    """Place where the program declares an untyped option."""
    scalar = document.scalars.get(knob.path) if document else None
    return scalar.default_of if scalar else None


def _row(knob: Knob, default: str | None, sureness: Sureness) -> tuple[str, ...]:
    value = json.dumps(knob.value, ensure_ascii=False)
    count = " ".join(part for part in (knob.scope, knob.unit) if part)
    counted = f"{value} ({count})" if knob.kind == "batch_size" and count != "sample" else value
    can = f"yes, a default: {default}" if default else "yes"
    if step := multiple_of(knob.comment, knob.value):
        can += f", multiples of {step:g}: the comment beside it"
    editable = can if knob.editable else f"no: {knob.why.partition('; not editable: ')[2]}"
    risk, level = _RISKS[knob.knob_class], sureness.level
    return (knob.path, counted, REGISTRY[knob.kind].words, knob.phase, risk, level, editable)


def _end_of(path: str) -> str:
    width = _WIDEST[0]
    return path if len(path) <= width else f"...{path[3 - width :]}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


# --- the command line ---------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `gpu-advisor inspect`."""
    parser.add_argument("config", nargs="*", type=Path, help="configs, or folders of configs")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--all", action="store_true", help="list look-alikes and constraints below each table"
    )
    parser.add_argument(
        "--run",
        action="store_true",
        help="run your command once as it is, and at most twice with values moved that may be "
        "knobs, to see which of them it follows",
    )
    parser.add_argument(
        "--allow-writes",
        action="store_true",
        help="with --run: go on although the command writes over existing files of yours",
    )
    limits.add_arguments(parser)


def with_runs(args: argparse.Namespace, command: Sequence[str] | None) -> Inspection:
    """Run a program and add the observations.

    Raises AdvisorError.
    """
    from advisor.commands import inspect_run

    among = configs_among(command or (), Path.cwd())
    named = args.config or [path for path in among if path.suffix != ".py"][:1]
    if len(named) > 1 or any(path.is_dir() for path in named):
        msg = "--run runs one program: name one config, or only `-- YOUR COMMAND`."
        raise UsageError(msg)
    config = named[0] if named else None
    shown = inspect_run.show(config, list(command) if command else None, args)
    return inspect(named, shown.argv, shown)


def _not_taken(
    paths: Sequence[Path], inspection: Inspection, command: Sequence[str] | None
) -> list[str]:
    """Sentences on configs that the command ignores."""
    read = {one.name: one.document for one in inspection.documents if one.document}
    if not command or any("{config}" in word for word in command):
        return []
    asked = [(path, read[str(path)]) for path in paths if str(path) in read]
    found = (why_not_taken(tuple(command), *each, Path.cwd()) for each in asked)
    return [why for why in found if why]


def run(args: argparse.Namespace, command: Sequence[str] | None) -> int:
    """Print the findings.

    Returns 0 unless nothing at all could be read. Raises UsageError when there is nothing to
    inspect, and the error of the only config.
    """
    if not args.config and not command:
        msg = "Nothing to inspect: name a config, a folder of configs, or `-- YOUR COMMAND`."
        raise UsageError(msg)
    inspection = with_runs(args, command) if args.run else inspect(args.config, command)
    errors = [one.error for one in inspection.documents if one.error]
    if len(errors) == len(inspection.documents) == 1 and not args.json:
        raise errors[0]
    text = (
        json.dumps(as_json(inspection), indent=2) + "\n"
        if args.json
        else as_text(inspection, details=args.all)
    )
    sys.stdout.write(text)
    for message in (*errors, *_not_taken(args.config, inspection, command)):
        sys.stderr.write(f"gpu-advisor: {message}\n")
    return errors[0].exit_code if errors and not inspection.findings else 0
