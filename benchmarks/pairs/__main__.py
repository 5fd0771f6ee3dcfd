"""Do values in the code gain as values in a config do, in real processes?

    python -m benchmarks.pairs [NAME ...] [--budget 4m] [--rounds 2] [--record pairs.jsonl]

Each program of `programs/` exists twice: as it stands there, with its values in the code, and with
the same values read from a YAML. Each is tuned by one call and runs under a stopwatch, as
`benchmarks.expert` does it. Printed: the gain that each call told and the true one, and their
ratios, code over config.

They run one after the other. A record is a line a call: with it, what was measured already is not
measured again.
"""

import argparse
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from advisor.errors import OPTIMIZE_EXIT_CODES
from advisor.model import JsonScalar
from benchmarks.expert.__main__ import Case, run

PROGRAMS = Path(__file__).with_name("programs")
CONFIG = "train.yaml"
READS = f"""\
import yaml

with open("{CONFIG}") as file:
    config = yaml.safe_load(file)
"""
PLACES = ("config", "code")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A program of `programs/`, and its values that the twin has in a YAML."""

    name: str
    values: Mapping[str, JsonScalar]
    items: int
    """Items of a run under the stopwatch."""
    settings: str = ""
    """Of its workload, in gpu-advisor.toml."""

    @property
    def in_code(self) -> str:
        return (PROGRAMS / f"{self.name}.py").read_text()

    @property
    def in_config(self) -> str:
        """The twin: each value is read from the config where it stood."""
        title, _, text = self.in_code.partition("\n\n")
        for name, value in self.values.items():
            given = rf"(\b|_)({name})( ?[=(] ?){re.escape(repr(value))}(?![.\w])"
            text, count = re.subn(given, rf'\1\2\3config["{name}"]', text, flags=re.IGNORECASE)
            if count != 1:
                msg = f"{self.name}.py has {name} {value!r} in {count} places, not in one"
                raise ValueError(msg)
        return f"{title}\n\n{READS}\n{text}"

    def case(self, place: str) -> Case:
        """One of the two, as a program to tune."""
        files = {"train.py": self.in_config if place == "config" else self.in_code}
        if self.settings:
            files["gpu-advisor.toml"] = f'[workload.pair]\ncommand = "x"\n{self.settings}\n'
        return Case(
            name=f"{self.name}, {place}",
            script="train",
            framework="",
            words="",
            items=self.items,
            config=CONFIG if place == "config" else "",
            text=yaml.safe_dump(dict(self.values), sort_keys=False) if place == "config" else "",
            expert={},
            others=files,
            flags=("--workload", "pair") if self.settings else (),
        )


CASES = (
    Pair(name="train_workers", values={"batch_size": 8, "num_workers": 0}, items=8000),
    Pair(name="train_sleeping", values={"batch_size": 8, "num_workers": 2}, items=8000),
    Pair(
        name="train_accumulation",
        values={"batch_size": 2, "num_workers": 1, "accumulation": 16},
        items=6000,
    ),
    Pair(
        name="train_epochs",
        values={"batch_size": 8, "num_workers": 2, "persistent_workers": False},
        items=9600,
    ),
    Pair(name="train_threads", values={"num_threads": 1, "batch_size": 64}, items=12000),
    Pair(name="score_batch", values={"batch_size": 1}, items=8000),
    Pair(name="score_both", values={"batch_size": 4, "num_workers": 0}, items=8000),
    Pair(
        name="score_precision",
        values={"amp": False, "batch_size": 64},
        items=20000,
        settings='numeric-tolerance = "5%"',
    ),
    Pair(
        name="trainer",
        values={"per_device_train_batch_size": 8, "dataloader_num_workers": 0},
        items=8000,
    ),
    Pair(
        name="lightning_loop",
        values={"accumulate_grad_batches": 8, "batch_size": 4, "num_workers": 0},
        items=8000,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one call told of one program, and the stopwatch after it."""

    name: str
    place: str
    verdict: str
    seconds: float
    told: float
    """Gain of what was written, with its suggestions on top."""
    true: float
    changes: list[str]


def measured(pair: Pair, place: str, budget: str, rounds: int) -> Measured:
    """Tune one of the two, and run it under the stopwatch."""
    outcome = run(pair.case(place), budget, rounds, only_truth=False)
    return Measured(
        name=pair.name,
        place=place,
        verdict=outcome.verdict,
        seconds=round(outcome.seconds, 1),
        told=round(outcome.told, 3),
        true=round(outcome.whole, 3),
        changes=list(outcome.changes),
    )


def kept(record: Path | None) -> dict[tuple[str, str], Measured]:
    """What the record holds, by program and place."""
    if record is None or not record.exists():
        return {}
    lines = map(json.loads, record.read_text().splitlines())
    return {(each["name"], each["place"]): Measured(**each) for each in lines}


def row(config: Measured, code: Measured) -> str:
    """Row of the table."""
    each = " | ".join(
        f"{one.verdict}, {one.seconds:.0f} s | {one.told:.2f} | {one.true:.2f}"
        for one in (config, code)
    )
    changes = f"{', '.join(config.changes)} | {', '.join(code.changes)}"
    return (
        f"| {config.name} | {each} | {code.told / config.told:.2f} "
        f"| {code.true / config.true:.2f} | {changes} |"
    )


def main() -> None:
    """Print a row for each pair."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    names = [pair.name for pair in CASES]
    parser.add_argument("names", nargs="*", choices=[*names, []], metavar="NAME")
    parser.add_argument("--budget", default="4m")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--record", type=Path, metavar="PATH")
    args = parser.parse_args()
    print(
        "| program | config: verdict | told | true | code: verdict | told | true | told, code over "
        "config | true, code over config | changes of the config | of the code |\n"
        "|:--|:--|--:|--:|:--|--:|--:|--:|--:|:--|:--|"
    )
    for pair in CASES:
        if args.names and pair.name not in args.names:
            continue
        found = kept(args.record)
        for place in PLACES:
            if (pair.name, place) in found:
                continue
            one = found[pair.name, place] = measured(pair, place, args.budget, args.rounds)
            if args.record and one.verdict in OPTIMIZE_EXIT_CODES:  # no call that failed
                with args.record.open("a") as file:
                    file.write(json.dumps(asdict(one)) + "\n")
        print(row(*(found[pair.name, place] for place in PLACES)), flush=True)


if __name__ == "__main__":
    main()
