"""`gpu-advisor gpus [NAME ...]`: GPU profiles, their sources, and the cards here."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from advisor.commands import invocation, output
from advisor.machine import profiles
from advisor.machine.gpu import read_gpus
from advisor.model import GpuProfile
from advisor.prediction import estimate

HEADS = ("card", "GiB", "GB/s", "fp32", "tf32", "16 bit", "W", "speed compared in")
LEGEND = (
    "TFLOPS are dense, with fp32 accumulation, as torch computes. `gpu-advisor gpus NAME` tells "
    "the sources. The last column names what published rates of the card were compared with."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="cards to show with their sources"
    )
    invocation.add_flags(parser, "--json")


def run(args: argparse.Namespace, _command: Sequence[str] | None) -> int:
    cards = [profiles.by_name(name) for name in args.names] or list(
        profiles.load_all().values()
    )
    gpus, note = read_gpus()
    here = [f"{gpu.name} ({gpu.profile or 'no profile'})" for gpu in gpus]
    fields = {
        "here": [asdict(gpu) for gpu in gpus],
        "gpus": [{**asdict(card), "compared": compared(card)} for card in cards],
    }
    lines = ["\n".join((profiles.describe(card), card.source, "")) for card in cards]
    if not args.names:
        lines = [*output.table([HEADS, *map(row, cards)]), "", LEGEND]
    lines.append(f"On this host: {', '.join(here) or note}")
    output.show(fields, "\n".join(lines), as_json=args.json)
    return 0


def compared(card: GpuProfile) -> list[str]:
    """Kinds of programs compared with published speeds."""
    names = {True: "training", False: "inference"}
    return [names[trains] for name, trains in estimate.VALIDATED if name == card.name]


def row(card: GpuProfile) -> tuple[str, ...]:
    figures = (
        card.memory_gib, card.bandwidth_gb_per_s, card.fp32_tflops, card.tf32_tflops,
        card.bf16_tflops or card.fp16_tflops, card.tdp_w,
    )  # fmt: skip
    texts = ("-" if figure is None else f"{figure:,.10g}" for figure in figures)
    return (card.name, *texts, ", ".join(compared(card)) or "-")
