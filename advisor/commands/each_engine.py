"""One tuned config for each engine, and one page: `optimize --engine rtx4060,h100`."""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from advisor import files, numbers
from advisor.commands import invocation, output
from advisor.errors import (
    AdvisorError,
    InterruptedByUserError,
    UsageError,
)
from advisor.report import markdown, writing
from advisor.report.schema import Report, Side

HOUR_S = 3600.0
HEAD = ("engine", "machine", "verdict", "before", "after", "memory")
SEPARATE = (
    "Each gain was proven on its own node. Rates of two nodes come from separate calls: a small "
    "difference between them says little."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Result on one engine."""

    engine: str
    outcome: Report | AdvisorError
    price: float | None = None
    """Price of an hour of the node."""

    @property
    def side(self) -> Side:
        """Tuned configuration; the original where none is proven."""
        return self.outcome.after if isinstance(self.outcome, Report) else Side()

    @property
    def price_of_1000(self) -> float | None:
        """Price of 1,000 units, where the node's is known."""
        per_s = self.side.units_per_s
        return 1000 * self.price / HOUR_S / per_s if self.price and per_s else None

    @property
    def exit_code(self) -> int:
        """Exit code of a call for this engine alone."""
        return self.outcome.exit_code


def names_of(engine: str) -> tuple[str, ...]:
    """Engines of `--engine a,b`, each once."""
    return tuple(dict.fromkeys(filter(None, map(str.strip, engine.split(",")))))


def run(
    args: argparse.Namespace,
    command: list[str] | None,
    tune: Callable[[argparse.Namespace, list[str] | None], Report],
) -> int:
    """Tune on one engine after another; return the largest exit code.

    An engine that fails ends nothing: its error stands in its row of the page.
    """
    if args.output is not None or len(args.configs) > 1:
        msg = "Several engines take one config and name the tuned ones. Leave out --output."
        raise UsageError(msg)
    asked = invocation.resolve(args.configs, command, workload=args.workload)
    paths = asked.paths
    first = next(iter(paths), None)
    place = writing.claim(args.report, never=paths, like=first, overwrite=args.overwrite)
    entries = []
    for name in names_of(args.engine):
        sys.stderr.write(f"\ngpu-advisor: engine {name}\n")
        table = asked.settings.engine.get(name)
        price = table.price if table else None
        outcome: Report | AdvisorError
        try:
            outcome = writing.masked(tune(own_arguments(args, name), command))
        except InterruptedByUserError:
            raise
        except AdvisorError as problem:
            sys.stderr.write(f"gpu-advisor: {problem}\n")
            outcome = problem
        entries.append(Entry(engine=name, outcome=outcome, price=price))
    text = page(entries, str(first or "command line"))
    place.write(args.report, f"{text}\n{files.MARKS['.md']}\n".encode(errors="replace"))
    output.show(fields(entries), text, as_json=args.json)
    return max(entry.exit_code for entry in entries)


def own_arguments(args: argparse.Namespace, name: str) -> argparse.Namespace:
    """Arguments of one engine's call: places of its own."""
    tag = re.sub(r"\W+", "-", name).strip("-")
    arguments = {
        "engine": name,
        "report": args.report.with_stem(f"{args.report.stem}.{tag}"),
    }
    if args.configs:
        arguments["output"] = args.configs[0].with_stem(f"{args.configs[0].stem}.{tag}")
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--engine")
    parser.add_argument("--report")
    typed = [f"--{option}={value}" for option, value in arguments.items()]
    words = [*parser.parse_known_args(args.words)[1], *typed]
    return argparse.Namespace(**{**vars(args), **arguments, "words": words})


def page(entries: Sequence[Entry], subject: str) -> str:
    """Markdown page: the fastest and the cheapest node, and a row each."""
    measured = [entry for entry in entries if entry.side.units_per_s]
    said = []
    if measured:
        reports = (entry.outcome for entry in measured if isinstance(entry.outcome, Report))
        unit = numbers.plural(next(reports).unit)
        best = max(measured, key=lambda entry: entry.side.units_per_s or 0.0)
        said.append(f"{best.engine} is fastest: {rate(best.side, unit)}.")
        priced = [(price, entry) for entry in measured if (price := entry.price_of_1000)]
        if len(priced) > 1:
            price, cheap = min(priced, key=lambda pair: pair[0])
            said.append(
                f"{cheap.engine} is cheapest: {numbers.number(price)} for 1,000 {unit}."
            )
    else:
        unit, said = "units", ["No engine gave a result."]
    head = (*HEAD, f"1,000 {unit} cost", "config", "report")
    body = markdown.table(head, "lllrrrrll", [row(entry, unit) for entry in entries])
    title = f"# {markdown.text(subject)}: {len(entries)} engines"
    return "\n\n".join((title, f"**{markdown.text(' '.join(said))}**", body, SEPARATE))


def row(entry: Entry, unit: str) -> tuple[str, ...]:
    report, price = entry.outcome, entry.price_of_1000
    if isinstance(report, AdvisorError):
        reason = str(report).partition("\n")[0]
        return (entry.engine, "", reason, "", "", "", "", "", "")
    machine = (
        ", ".join(gpu.name for gpu in report.machine.gpus) or f"{report.machine.cpus} CPUs"
    )
    peak = entry.side.peak_mem_gib
    improved = report.verdict == "improved"
    gain = f" {report.gain.size}" if improved and report.gain else ""
    return (
        entry.engine,
        machine,
        f"{report.verdict}{gain}",
        rate(report.before, unit),
        rate(report.after, unit) if improved else "",
        "" if peak is None else numbers.gib(peak),
        "" if price is None else numbers.number(price),
        markdown.code(report.written) if report.written else "",
        markdown.code(report.report),
    )


def rate(side: Side, unit: str) -> str:
    """Throughput as text; empty if not measured."""
    return (
        "" if side.units_per_s is None else f"{numbers.number(side.units_per_s)} {unit}/s"
    )


def fields(entries: Sequence[Entry]) -> dict[str, Any]:
    """The one object of `--json`."""
    values = {}
    for entry in entries:
        entry_fields: dict[str, Any] = {"problem": str(entry.outcome)}
        if isinstance(entry.outcome, Report):
            entry_fields = writing.headline(entry.outcome) | {"problem": None}
        values[entry.engine] = entry_fields | {"price_of_1000": entry.price_of_1000}
    return {"engines": values}
