"""How well knobs are found in real configs: `python -m benchmarks.knob_finder [CORPUS]`.

CORPUS (else $ADVISOR_CORPUS, else ../shared/corpus) holds files/ and index.jsonl, one object a
file with its labelled `knobs` (path, kind, phase, note) and `traps` (path).
"""

import json
import os
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor import config as documents, knobs
from advisor.errors import AdvisorError
from advisor.knobs.registry import REGISTRY
from advisor.model import Knob

_SCOPES = [
    ("global", r"\bglobal\b"),
    ("device", r"per (gpu|device|card)|one gpu"),
    ("micro", "micro"),
]
_UNIT = re.compile(r"unit = (?:audio )?(token|frame|second|ray|sample)")


@dataclass(slots=True)
class Score:
    """Counts over a corpus; `wrong` holds one line for each disagreement."""

    labelled: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    traps: int = 0
    traps_hit: int = 0
    phases: Counter[bool] = field(default_factory=Counter)
    scopes: Counter[bool] = field(default_factory=Counter)
    edits: Counter[bool] = field(default_factory=Counter)
    """Whether only the bytes of the value changed."""
    unjudged: int = 0
    """Settings of a block like a labelled one: a file of alternatives is labelled in one."""
    unread: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def precision(self, *kinds: str) -> float:
        """Share of the knobs found of these kinds that are labelled so."""
        return _share(sum(self.right[k] for k in kinds), sum(self.found[k] for k in kinds))

    def recall(self, *kinds: str) -> float:
        """Share of the labelled knobs of these kinds that were found."""
        return _share(sum(self.right[k] for k in kinds), sum(self.labelled[k] for k in kinds))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


def score(corpus: Path) -> Score:
    """Compare what is found in every file that parses with its labels."""
    result = Score()
    for line in (corpus / "index.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        try:
            document = documents.read(corpus / "files" / row["file"])
            found = knobs.find(document)
        except AdvisorError as problem:
            result.unread.append(f"{row['file']}: {type(problem).__name__}")
            continue
        _compare(result, row, {knob.path: knob for knob in found.knobs})
        _edit(result, row["file"], document, found.knobs)
    return result


def _compare(result: Score, row: dict[str, Any], found: dict[str, Knob]) -> None:
    labels = {label["path"]: label for label in row["knobs"]}
    traps = {trap["path"] for trap in row["traps"]}
    result.traps += len(traps)
    blocks = {(label["kind"], _in_block(path)) for path, label in labels.items()}
    for path, knob in found.items():
        if path not in labels and (knob.kind, _in_block(path)) in blocks:
            result.unjudged += 1
            continue
        result.found[knob.kind] += 1
        label = labels.get(path)
        if path in traps:
            result.traps_hit += 1
            result.wrong.append(f"trap hit  {knob.kind}  {row['file']}: {path}")
        elif label is None or label["kind"] != knob.kind:
            result.wrong.append(f"not labelled  {knob.kind}  {row['file']}: {path}")
        else:
            result.right[knob.kind] += 1
            result.phases[knob.phase == label["phase"]] += 1
            _compare_counting(result, row, label, knob)
    for path, label in labels.items():
        if label["kind"] not in REGISTRY:  # labelled, and nothing tunes it
            continue
        result.labelled[label["kind"]] += 1
        if path not in found or found[path].kind != label["kind"]:
            result.wrong.append(f"missed  {label['kind']}  {row['file']}: {path}")


def _in_block(path: str) -> str | None:
    """Path below the outermost key; None of that key itself."""
    return path.partition(".")[2] or None


def _edit(result: Score, file: str, document: documents.Document, found: tuple[Knob, ...]) -> None:
    """Edit each number alone: no byte outside of it may change."""
    for knob in found:
        if knob.editable and isinstance(knob.value, int) and not isinstance(knob.value, bool):
            leaf, text = document.scalars[knob.path], document.text
            edited = document.with_values({knob.path: 2 * knob.value + 3})
            head = document.raw.removesuffix(text[leaf.start :].encode())
            right = edited.startswith(head) and edited.endswith(text[leaf.end :].encode())
            result.edits[right and edited != document.raw] += 1
            if not right:
                result.wrong.append(f"edited outside of it  {file}: {knob.path}")


def _compare_counting(
    result: Score, row: dict[str, Any], label: dict[str, Any], knob: Knob
) -> None:
    """Scope and unit, where the note of a batch label states them."""
    if knob.kind != "batch_size":
        return
    note = label.get("note", "").lower()
    scope = next((name for name, words in _SCOPES if re.search(words, note)), None)
    unit = _UNIT.search(note)
    for wanted, got in ((scope, knob.scope), (unit and unit[1], knob.unit)):
        if wanted:
            result.scopes[wanted == got] += 1
            if wanted != got:
                result.wrong.append(f"{got} for {wanted}  {row['file']}: {knob.path}")


def table(result: Score) -> str:
    """One row a kind, then traps, phases and scopes."""
    lines = [f"{'kind':<20}{'labels':>8}{'found':>8}{'precision':>11}{'recall':>8}"]
    for kind, count in result.labelled.most_common():
        precision, recall = result.precision(kind), result.recall(kind)
        lines.append(f"{kind:<20}{count:>8}{result.found[kind]:>8}{precision:>11.3f}{recall:>8.3f}")
    hit = _share(result.traps_hit, result.traps)
    lines += [
        f"traps hit: {result.traps_hit} of {result.traps} ({hit:.1%})",
        f"phase right: {_share(result.phases[True], result.phases.total()):.1%}",
        (
            f"scope and unit right: {_share(result.scopes[True], result.scopes.total()):.1%} "
            f"of {result.scopes.total()} that a label states"
        ),
        f"edits within the value: {result.edits[True]} of {result.edits.total()}",
        f"not read: {len(result.unread)}",
        f"not judged: {result.unjudged} settings of blocks like a labelled one",
    ]
    return "\n".join(lines)


FLOOR = 0.985
"""Least precision over all kinds."""


def main(argv: list[str]) -> int:
    """Print the table, and with `-v` every disagreement; 1 below the floor."""
    folders = [word for word in argv if not word.startswith("-")]
    default = os.environ.get("ADVISOR_CORPUS", "../shared/corpus")
    result = score(Path(folders[0] if folders else default))
    print(table(result))
    if "-v" in argv:
        print("\n".join(sorted(result.wrong)))
    precision = result.precision(*result.found)
    print(f"all kinds: precision {precision:.4f}, recall {result.recall(*result.labelled):.4f}")
    return int(precision < FLOOR or result.edits[False] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
