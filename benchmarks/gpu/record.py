"""Lines of a run, and the two files they go into, written anew after each."""

import json
import re
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

MARKS = {True: "as expected", False: "**not as expected**", None: "told"}
NOT_BEGUN = "**not begun**"


@dataclass(frozen=True, kw_only=True)
class Line:
    """One thing that was looked at."""

    step: str
    what: str
    expected: str
    found: str
    ok: bool | None
    """None: a figure without an expectation, or something that does not apply here."""
    mend: str = ""
    """Where to look if it is not as expected."""
    begun: bool = True
    """False: there was no time left for the step, and nothing is known of it."""
    seconds: float = 0.0


@dataclass(kw_only=True)
class Record:
    """Everything of one run."""

    folder: Path
    facts: dict[str, Any] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    begun: float = field(default_factory=time.time)
    name: str = "unknown"
    made: bool = False
    """Over a card that is simulated below the CUDA API."""

    def add(self, line: Line) -> None:
        """Keep `line`, print it, and write both files."""
        self.lines.append(line)
        mark = {True: "ok ", False: "NOT", None: "   "}[line.ok] if line.begun else "---"
        print(f"{mark} {line.step}: {line.what}: {line.found}", flush=True)
        self.write()

    @property
    def missing(self) -> list[str]:
        """Steps that were not begun."""
        return [line.step for line in self.lines if not line.begun]

    @property
    def as_expected(self) -> bool:
        """Whether every step was begun and no line is other than expected."""
        return not self.missing and all(line.ok is not False for line in self.lines)

    @property
    def stem(self) -> str:
        """`gpu-nvidia-h100-80gb-hbm3-2026-11-22`"""
        card = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")
        return f"gpu-{card}-{time.strftime('%Y-%m-%d', time.gmtime(self.begun))}"

    def write(self) -> None:
        """Both files, each replaced whole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        wall_s = round(time.time() - self.begun, 1)
        content = {
            "facts": self.facts,
            "wall_s": wall_s,
            "not_begun": self.missing,
            "lines": [asdict(line) for line in self.lines],
        }
        for suffix, text in ((".json", json.dumps(content, indent=2) + "\n"), (".md", self.page())):
            draft = self.folder / f"{self.stem}{suffix}.tmp"
            draft.write_text(text, encoding="utf-8")
            draft.replace(self.folder / f"{self.stem}{suffix}")

    def page(self) -> str:
        """The run as Markdown."""
        wrong = [line for line in self.lines if line.ok is False]
        right = sum(line.ok is True for line in self.lines)
        day = time.strftime("%Y-%m-%d", time.gmtime(self.begun))
        took = f"in {time.time() - self.begun:.0f} s"
        counted = f"{right} lines as expected, {len(wrong)} not"
        if self.missing:
            counted += f"; not begun for want of time: {', '.join(self.missing)}"
        head = [
            f"# gpu-advisor on {self.name}",
            "",
            f"`python -m benchmarks.gpu`, {day}, {took}: {counted}.",
            *(
                ["Made: the card is simulated below the CUDA API; no figure is a real card's."]
                if self.made
                else []
            ),
            "",
            *(f"- {name}: {value}" for name, value in self.facts.items()),
            "",
        ]
        if wrong:
            head += ["Not as expected:", ""]
            head += [f"- {line.step}, {line.what}: {line.mend or line.found}" for line in wrong]
            head.append("")
        rows = ["| step | what | expected | found | | s |", "|:--|:--|:--|:--|:--|--:|"]
        rows += [
            f"| {line.step} | {_cell(line.what)} | {_cell(line.expected)} | {_cell(line.found)} "
            f"| {MARKS[line.ok] if line.begun else NOT_BEGUN} | {line.seconds:.1f} |"
            for line in self.lines
        ]
        return "\n".join([*head, *rows]) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
