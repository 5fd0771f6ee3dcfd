"""Variants of one `compare`: configs, commands or numbers of ranks, with what came of each."""

import argparse
import itertools
import os
import shlex
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from advisor import masking, numbers, settings
from advisor.commands import invocation
from advisor.commands.rank_scaling import with_ranks
from advisor.errors import UsageError
from advisor.executor.comparison import Comparison
from advisor.model import Interval, Run
from advisor.objective import THROUGHPUT

FEWEST, MOST = 2, 6
"""Variants of one call."""
SEPARATOR = "--vs"
NAMES = "ABCDEF"
VariantVerdict = Literal[
    "reference",
    "faster",
    "not slower",
    "slower",
    "undecided",
    "failed",
    "other work",
    "worse",
]
"""`worse`: the declared quality is out of tolerance."""


@dataclass(kw_only=True)
class ComparedVariant:
    """Variant, with its result so far."""

    name: str
    label: str
    """Config's path, or the words in which its command differs."""
    asked: invocation.Invocation
    ranks: int | None = None
    warm_up: Run | None = None
    verdict: VariantVerdict | None = None
    reason: str = ""

    def drop(self, verdict: VariantVerdict, reason: str = "") -> None:
        """Set its verdict; it is measured no more."""
        self.verdict, self.reason = verdict, reason

    def gain(self, rounds: Comparison | None) -> Interval | None:
        """Throughput over the first variant's; none of skipped or failed work."""
        if rounds is None or self.verdict in {"reference", "failed", "other work"}:
            return None
        return rounds.interval(THROUGHPUT, self.name)

    def as_object(self, rounds: Comparison | None) -> dict[str, Any]:
        runs = (
            rounds.runs(self.name) if rounds and self.name in rounds.ab_test.names else ()
        )
        gain, rates = self.gain(rounds), [run.units_per_s for run in runs]
        peaks = [run.peak_mem_gib for run in runs if run.peak_mem_gib is not None]
        return {
            "name": self.name,
            "label": self.label,
            "ranks": self.ranks,
            "command": self.asked.command,
            "units_per_s": statistics.median(rates) if rates else None,
            "runs": rates,
            "peak_mem_gib": max(peaks, default=None),
            "gain": gain and {"ratio": gain.estimate, "low": gain.low, "high": gain.high},
            "verdict": self.verdict,
            "reason": self.reason,
        }


def arms_of(args: argparse.Namespace, command: list[str]) -> list[ComparedVariant]:
    """Variants in order: configs, commands, or numbers of ranks."""
    configs, counts, blocks = args.configs, args.ranks or (), split_blocks(command)
    if counts and (configs or len(blocks) != 1):
        msg = (
            "--ranks compares one command, without configs: `--ranks 1,2 -- torchrun a.py`."
        )
        raise UsageError(msg)
    blocks = [with_ranks(blocks[0], count) for count in counts] or blocks
    if configs and len(blocks) > 1:
        msg = f"Compare configs, or commands separated by {SEPARATOR}, not both at once."
        raise UsageError(msg)
    variants = len(configs or blocks)
    if not FEWEST <= variants <= MOST:
        msg = (
            f"compare takes {FEWEST} to {MOST} variants, and {variants} "
            f"{'was' if variants == 1 else 'were'} named. Name configs, as in "
            "`gpu-advisor compare a.yaml b.yaml -- python train.py --config a.yaml`, or commands, "
            f"as in `gpu-advisor compare -- python a.py {SEPARATOR} python b.py`."
        )
        raise UsageError(msg)
    template = [_placeholder(word, configs) for word in command]
    labels = [numbers.many(count, "rank") for count in counts] or list(map(str, configs))
    labels = labels or [masking.mask_text(shlex.join(words)) for words in differing(blocks)]
    programs: list[tuple[list[Path], list[str]]] = [
        ([config], template) for config in configs
    ]
    programs = programs or [([], block) for block in blocks]
    workloads = (
        settings.load(settings.find(one.parent)).workload_for(one) for one in configs
    )
    workload = args.workload or next(filter(None, workloads), None)
    arms: list[ComparedVariant] = []
    for place, (paths, words) in enumerate(programs):
        asked = invocation.resolve(
            paths, words, workload=workload, use_case="compare", with_options=False
        )
        invocation.require_program(asked.argv, asked.cwd, asked.environ)
        ranks = counts[place] if counts else None
        arms.append(
            ComparedVariant(
                name=NAMES[place], label=labels[place], asked=asked, ranks=ranks
            )
        )
    return arms


def split_blocks(command: list[str]) -> list[list[str]]:
    """Split commands at separators. Raises UsageError for an empty one."""
    parts = itertools.groupby(command, key=lambda word: word == SEPARATOR)
    blocks = [list(words) for is_separator, words in parts if not is_separator]
    if command and len(blocks) != command.count(SEPARATOR) + 1:
        msg = (
            f"A command is missing beside {SEPARATOR}. Write `-- CMD A {SEPARATOR} CMD B`."
        )
        raise UsageError(msg)
    return blocks


def differing(blocks: Sequence[list[str]]) -> list[list[str]]:
    """Words in which commands differ; an option stays with its value."""
    first = min(_alike(blocks), min(map(len, blocks)) - 1)
    if (
        first
        and blocks[0][first - 1].startswith("-")
        and not blocks[0][first].startswith("-")
    ):
        first -= 1  # the option of this value
    last = _alike([block[:first:-1] for block in blocks])
    return [block[first : len(block) - last] for block in blocks]


def _alike(blocks: Sequence[list[str]]) -> int:
    same = (len(set(words)) == 1 for words in zip(*blocks, strict=False))
    return sum(itertools.takewhile(bool, same))


def _placeholder(word: str, configs: Sequence[Path]) -> str:
    """Replace a config's path in `word` by `{config}`."""
    flag, equals, value = word.rpartition("=")
    named = {os.path.realpath(config) for config in configs}
    return f"{flag}{equals}{{config}}" if os.path.realpath(value) in named else word
