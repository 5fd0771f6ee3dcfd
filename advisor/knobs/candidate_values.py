"""Values of a knob, with their linked changes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from advisor.knobs.catalogue import Shape, catalogue
from advisor.knobs.tree import canonical, number_of, parts_of
from advisor.model import Change

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from advisor.config import Document
    from advisor.knobs.findings import Findings
    from advisor.model import JsonScalar, Knob, KnobConstraint


def is_ban(comment: str | None, value: JsonScalar | tuple[JsonScalar, ...]) -> bool:
    """True if `comment` forbids a change of `value`."""
    text = comment or ""
    if multiple_of(comment, value) is not None:
        text = catalogue().comments["multiple"].sub(" ", text)
    return bool(catalogue().comments["constraint"].search(text))


def multiple_of(comment: str | None, value: JsonScalar | tuple[JsonScalar, ...]) -> float | None:
    """The number whose multiples `comment` allows, or None.

    It is the one number that is named, else `value`: what that is a multiple of (of devices, of
    another setting), its own multiples are too.
    """
    match = catalogue().comments["multiple"].search(comment or "")
    number = None if isinstance(value, tuple) else number_of(value)
    if match is None or comment is None or not number or number < 0:
        return None
    only = len(re.findall(r"\d+", comment)) == 1
    return float(match["divisor"]) if match["divisor"] and only else number


def no_multiple(knob: Knob, value: JsonScalar) -> str | None:
    """Reason why the comment beside `knob` rules out `value`."""
    step, number = multiple_of(knob.comment, knob.value), number_of(value)
    if not step or number is None or number % step == 0:
        return None
    return f'{value} is no multiple of {step:g}, and the comment beside it says "{knob.comment}"'


NARROW = ("bfloat16", "float16")
"""In the order in which they are tried: bfloat16 needs no loss scaling."""
_WIDTH_BITS = {"float32": 32, "float16": 16, "bfloat16": 16}


def precision_choices(knob: Knob) -> dict[str, JsonScalar]:
    """Precisions to try, bfloat16 first, as spelled values.

    Each torch dtype maps to the value that asks for it, never wider than the current one. Only
    words of the spelling family already in use: `16-mixed` gives `bf16-mixed`, `fp32` gives `bf16`
    and `fp16`, a flag that is off can be put on. Empty where the family is not known.
    """
    if isinstance(knob.value, bool):
        return {} if knob.value else dict.fromkeys(_dtypes_of_flag(knob), True)
    row, current = row_of(knob.value)
    return {
        dtype: _cased(row[dtype], knob.value)
        for dtype in NARROW
        if dtype in row and dtype != current and _WIDTH_BITS[dtype] <= _WIDTH_BITS[current]
    }


def _dtypes_of_flag(knob: Knob) -> tuple[str, ...]:
    """Dtypes of a flag; `amp` leaves the choice open."""
    name = "_".join(str(part) for part in parts_of(knob.path)[-2:]).lower()
    if re.search(r"(?:fp|float|int)_?8(?!\d)", name):
        return ()
    if "bf16" in name or "bfloat16" in name:
        return ("bfloat16",)
    return ("float16",) if re.search(r"16|half", name) else NARROW


def row_of(value: object) -> tuple[dict[str, JsonScalar], str]:
    """Spelling family of `value`, and its dtype."""
    for row in catalogue().precision_rows:
        for dtype, word in row.items():
            if type(word) is type(value) and str(word).lower() == str(value).lower():
                return dict(row), dtype
    return {}, "float32"


def _cased(word: JsonScalar, like: object) -> JsonScalar:
    return word.upper() if isinstance(word, str) and str(like).isupper() else word


LARGEST_BETA = 0.999
"""The field's usual cap; beyond it a step keeps nothing of what came before."""

TOLERANCE = 1e-3
"""Largest relative error of the terminal log-signal, after the ends were rounded."""


def log_signal(start: float, end: float, steps: int, shape: Shape = "line") -> float:
    """Log-signal of a schedule: log prod(1 - beta_t).

    Raises ValueError where a beta is outside [0, 1).
    """
    betas = _betas(start, end, steps, shape)
    if not all(0 <= beta < 1 for beta in betas):
        msg = f"a schedule from {start} to {end} has a noise rate outside [0, 1)"
        raise ValueError(msg)
    return math.fsum(math.log1p(-beta) for beta in betas)


def rescaled_schedule(
    start: float, end: float, steps: int, new_steps: int, shape: Shape = "line"
) -> tuple[float, float]:
    """Rescale a schedule's ends to the same terminal signal.

    Rounded to six significant digits, or as few more as keep the log-signal within TOLERANCE.
    Raises ValueError, with the numbers, where no noise rate up to LARGEST_BETA does.
    """
    wanted = log_signal(start, end, steps, shape)
    if wanted == 0:
        msg = f"a schedule from {start} to {end} adds no noise"
        raise ValueError(msg)
    low, high = 0.0, LARGEST_BETA / max(start, end)
    reached = log_signal(start * high, end * high, new_steps, shape)
    if reached > wanted:
        msg = (
            f"{new_steps} steps cannot reach the terminal signal {math.exp(wanted):.3g} of "
            f"{steps} steps from {start:g} to {end:g}: even a last noise rate of {LARGEST_BETA} "
            f"leaves {math.exp(reached):.3g}"
        )
        raise ValueError(msg)
    for _ in range(200):
        middle = (low + high) / 2
        if log_signal(start * middle, end * middle, new_steps, shape) > wanted:
            low = middle
        else:
            high = middle
    for digits in range(6, 18):
        ends = (_rounded(start * low, digits), _rounded(end * low, digits))
        if abs(log_signal(*ends, new_steps, shape) / wanted - 1) <= TOLERANCE:
            return ends
    msg = f"no rounding of the ends keeps the terminal signal {math.exp(wanted):.3g}"
    raise ValueError(msg)


def _betas(start: float, end: float, steps: int, shape: Shape) -> list[float]:
    if steps < 2:
        return [start] * steps
    power = 2 if shape == "root-line" else 1
    first, last = start ** (1 / power), end ** (1 / power)
    return [(first + (last - first) * i / (steps - 1)) ** power for i in range(steps)]


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


NOTHING: Mapping[str, JsonScalar] = MappingProxyType({})
MOST_SHOWN = 8
"""Values of a choice that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidChange:
    """A knob that cannot be moved so, and why."""

    reason: str


def move(
    document: Document,
    findings: Findings,
    path: str,
    value: JsonScalar,
    beside: Mapping[str, JsonScalar] = NOTHING,
    *,
    beyond: bool = False,
) -> tuple[Change, ...] | InvalidChange:
    """Move a knob with its links, or say why not.

    The knob at `path` is set to `value`. Links that ask for nothing (`lr-batch`, `reference`)
    change nothing: where there is an accumulation the effective batch is kept, and with it the
    learning rate stays right.
    """
    knob = findings.knob(path)
    if knob is None:
        return InvalidChange(reason=f"{path} is no knob of {findings.document}")
    if not knob.editable:
        return InvalidChange(reason=f"{path}: {knob.why}")
    plan = _Plan(document, findings, knob, value, beside, beyond=beyond)
    if why := plan.not_taken(path, value):
        return InvalidChange(reason=f"{path} = {value}: {why}")
    for link in findings.links:
        linked = path in link.paths and link.kind in _MOVES
        refusal = _MOVES[link.kind](plan, link) if linked else None
        if refusal:
            return InvalidChange(reason=f"{path} = {value}: {refusal}")
    changes = tuple(change for change in plan.changes.values() if change.new != change.old)
    for change in changes:
        if not document.takes(change.path, change.new):
            return InvalidChange(reason=f"{change.path} cannot be set to {change.new}")
    return changes


class _Plan:
    """The changes a move needs, gathered link by link."""

    def __init__(
        self,
        document: Document,
        findings: Findings,
        knob: Knob,
        value: JsonScalar,
        beside: Mapping[str, JsonScalar],
        *,
        beyond: bool,
    ) -> None:
        self.findings = findings
        self.knob = knob
        self.value = value
        self.scalars = document.scalars
        self.absent = {each.path for each in document.absent}
        self.beside = beside
        self.beyond = beyond
        self.dataset = _dataset_size(document, findings, knob)
        self.changes: dict[str, Change] = {}
        self._plan(knob.path, value, knob.kind)

    def old(self, path: str) -> JsonScalar:
        """Present value at `path`; None for a list."""
        scalar = self.scalars.get(path)
        return scalar.value if scalar else None

    def not_taken(self, path: str, value: JsonScalar) -> str | None:
        """Reason why the program would refuse `value`.

        Its choices or a comment say so.
        """
        knob = self.findings.knob(path)
        if knob and (why := no_multiple(knob, value)):
            return why
        number = number_of(value)
        if self.dataset and path == self.knob.path and number and number > self.dataset[1]:
            return f"the dataset is smaller: {self.dataset[0]} = {self.dataset[1]:g}"
        scalar = self.scalars.get(path)
        if scalar is None or not scalar.choices or value in scalar.choices:
            return None
        shown = ", ".join(map(str, scalar.choices[:MOST_SHOWN]))
        more = ", ..." if len(scalar.choices) > MOST_SHOWN else ""
        return f"the program takes only {shown}{more}"

    def set(self, path: str, value: JsonScalar, kind: str | None = None) -> str | None:
        """Plan `value` at `path`, or return the refusal."""
        scalar, knob = self.scalars.get(path), self.findings.knob(path)
        why = "it is a list" if scalar is None else None if scalar.editable else scalar.why
        why = knob.why if knob and not knob.editable else why
        why = why or self.not_taken(path, value)
        if why:
            return f"{path} would have to become {value}, but {why}"
        self._plan(path, value, kind or (knob or self.knob).kind)
        return None

    def _plan(self, path: str, value: JsonScalar, kind: str) -> None:
        like = self.findings.knob(path) or self.knob
        self.changes[path] = Change(
            document=self.findings.document,
            path=path,
            kind=kind,
            knob_class=like.knob_class,
            old=self.old(path),
            new=value,
            name=self.findings.name_of(path),
        )


_DATASET_SIZE = re.compile(
    r"(?:(?:num|n|max|total)_(?:(?:train|test|val|eval)_)?"
    r"(?:images|samples|items|examples|files|records|rows|instances)"
    r"|(?:data|dataset)_(?:len|length|size))"
)


def _dataset_size(document: Document, findings: Findings, knob: Knob) -> tuple[str, float] | None:
    """Largest dataset size that the config names.

    A number below the present batch counts something else. Sections of another phase are left out.
    """
    present = number_of(knob.value)
    if knob.kind != "batch_size" or knob.unit not in (None, "sample") or not present:
        return None
    known = {each.path for each in findings.knobs}
    sizes = {
        path: number
        for path, scalar in document.scalars.items()
        if path not in known
        and not isinstance(scalar.value, bool)
        and (number := number_of(scalar.value)) is not None
        and number >= present
        and _DATASET_SIZE.fullmatch(canonical(str(parts_of(path)[-1])))
        and not _of_another_phase(path, knob)
    }
    return max(sizes.items(), key=lambda item: item[1], default=None)


def _of_another_phase(path: str, knob: Knob) -> bool:
    words = {word for part in parts_of(path) for word in re.split(r"[^a-z]+", str(part).lower())}
    phases = {catalogue().phase_words[word] for word in words if word in catalogue().phase_words}
    return bool(phases) and knob.phase != "any" and knob.phase not in phases


def _move_product(plan: _Plan, link: KnobConstraint) -> str | None:
    """Keep batch x accumulation x ranks constant.

    Another of them gives way to the one that moved. An accumulation of one batch has nothing to
    give: a larger batch is then what it would be if that key were not there.
    """
    new = number_of(plan.value)
    if not new or new < 1:
        return f"a {plan.knob.kind} is at least 1"
    factors, total = _factors(plan, link)
    if plan.knob.path not in factors:
        return None if _is_alone(plan, factors) else _smaller_instead(factors)
    others = [path for path in factors if path != plan.knob.path]
    if total is not None and "batch_size" not in factors.values():
        return _keep_derived(plan, total, others, new)
    yielding = next((p for kind in _YIELDS for p in others if factors[p] == kind), None)
    if yielding is None:
        return _share_total(plan, total, others, new) if total else None
    old, other = number_of(plan.old(plan.knob.path)), number_of(plan.old(yielding))
    if old is None or other is None:
        return f"{yielding} = {plan.old(yielding)} is no number to keep the product with"
    if (old * other) % new == 0:
        return plan.set(yielding, _like(old * other / new, plan.old(yielding)))
    if other == 1 and (plan.knob.kind, factors[yielding]) == ("batch_size", "grad_accum"):
        return _move_total(plan, total, new / old) if total else None
    if plan.beyond and total is None and new > old * other and factors[yielding] == "grad_accum":
        return plan.set(yielding, _like(1, plan.old(yielding)))
    return f"the product {old:g} x {other:g} of {plan.knob.path} and {yielding} cannot be kept"


def _is_alone(plan: _Plan, factors: Mapping[str, str]) -> bool:
    """True if the global batch is the only batch."""
    counts = [number_of(plan.old(p)) for p, kind in factors.items() if kind == "grad_accum"]
    return "batch_size" not in factors.values() and all(count == 1 for count in counts)


def _smaller_instead(factors: Mapping[str, str]) -> str:
    return f"the global batch is what the optimizer sees: move {next(iter(factors), None)} instead"


def _share_total(plan: _Plan, total: str, others: list[str], new: float) -> str | None:
    """Keep the global batch a multiple of the smaller one.

    The program accumulates as often as the one holds the other. It moves along where it holds it
    once.
    """
    old, whole = number_of(plan.old(plan.knob.path)), number_of(plan.old(total))
    if whole is not None and whole % new == 0:
        return None
    counts = [number_of(plan.old(path)) for path in others]
    if old and None not in counts and whole == old * math.prod(filter(None, counts)):
        return _move_total(plan, total, new / old)
    return f"{total} = {plan.old(total)} is no multiple of {plan.value}"


def _move_total(plan: _Plan, total: str, times: float) -> str | None:
    """Move a global batch that is never accumulated.

    Its key holds no more than the smaller.
    """
    whole = (number_of(plan.old(total)) or 0.0) * times
    if not whole or whole != int(whole):
        return f"{total} = {plan.old(total)} times {times:g} is no count"
    return plan.set(total, _like(whole, plan.old(total)))


_YIELDS = ("grad_accum", "batch_size")
"""Which factor gives way, the first that is there: never the ranks, which the launcher sets."""


def _factors(plan: _Plan, link: KnobConstraint) -> tuple[dict[str, str], str | None]:
    """Factors by path, and the path of their product."""
    factors, total = {}, None
    for path in link.paths:
        knob = plan.findings.knob(path)
        if knob is not None and (knob.kind != "batch_size" or knob.scope != "global"):
            factors[path] = knob.kind
        else:
            total = path
    return factors, total


def _keep_derived(plan: _Plan, total: str, others: list[str], new: float) -> str | None:
    """Require that the total divides evenly."""
    whole = number_of(plan.old(total))
    counts = [number_of(plan.old(path)) for path in others]
    if whole is None or None in counts:
        return f"{', '.join((total, *others))} are not all numbers"
    if whole % math.prod((new, *filter(None, counts))):
        return f"{total} = {whole:g} is no multiple of {plan.value} times the other factors"
    return None


def _like(number: float, old: JsonScalar) -> JsonScalar:
    return (
        number
        if isinstance(old, float)
        else str(int(number))
        if isinstance(old, str)
        else int(number)
    )


def _move_exclusive(plan: _Plan, link: KnobConstraint) -> str | None:
    other = next(path for path in link.paths if path != plan.knob.path)
    if plan.value is True and plan.old(other) is not False:
        return plan.set(other, False)
    return None


def _move_needing_workers(plan: _Plan, link: KnobConstraint) -> str | None:
    dependent, workers = link.paths
    if plan.knob.path == workers:
        unwritten = dependent in plan.absent and dependent not in plan.beside
        if plan.value != 0 or unwritten or plan.old(dependent) in (None, False):
            return None
        return plan.set(dependent, False if isinstance(plan.old(dependent), bool) else None)
    if plan.value not in (None, False) and plan.beside.get(workers, plan.old(workers)) == 0:
        return f"{link.why}, and {workers} is 0"
    return None


def _move_schedule(plan: _Plan, link: KnobConstraint) -> str | None:
    steps_path, start_path, end_path = link.paths
    if plan.knob.path != steps_path:
        return f"it belongs to {steps_path}"
    steps, new = number_of(plan.old(steps_path)), number_of(plan.value)
    start, end = number_of(plan.old(start_path)), number_of(plan.old(end_path))
    if None in (steps, new, start, end) or not new or new < 1:
        return f"{start_path}, {end_path} and {steps_path} are not all numbers"
    known = catalogue()
    word = _schedule_word(plan, steps_path)
    if word not in known.schedule_shapes:
        return f"the schedule {word!r} is none whose terminal signal can be kept"
    shape = known.schedule_shapes[word]
    if shape is None:
        return None
    assert steps
    assert start is not None
    assert end is not None
    try:
        ends = rescaled_schedule(start, end, int(steps), int(new), shape)
    except ValueError as problem:
        return str(problem)
    return plan.set(start_path, ends[0], "schedule") or plan.set(end_path, ends[1], "schedule")


def _schedule_word(plan: _Plan, steps_path: str) -> str:
    """Word for the schedule's kind beside the steps."""
    prefix = parts_of(steps_path)[:-1]
    for path, scalar in plan.scalars.items():
        parts = parts_of(path)
        if parts[:-1] == prefix and canonical(str(parts[-1])) in catalogue().schedule_names:
            return str(scalar.value).lower()
    return "linear"


def _move_fixed(plan: _Plan, link: KnobConstraint) -> str | None:
    return f"{link.why}: {plan.old(link.paths[1])}"


def _move_equal(plan: _Plan, link: KnobConstraint) -> str | None:
    other = next(path for path in link.paths if path != plan.knob.path)
    number = number_of(plan.value)
    return plan.set(other, plan.value if number is None else _like(number, plan.old(other)))


def _move_multiple(plan: _Plan, link: KnobConstraint) -> str | None:
    total, new = number_of(plan.old(link.paths[1])), number_of(plan.value)
    if total is not None and total > 0 and new and total % new:
        return f"{link.paths[1]} = {total:g} must be a multiple of it"
    return None


_MOVES: Mapping[str, Callable[[_Plan, KnobConstraint], str | None]] = {
    "product": _move_product,
    "exclusive": _move_exclusive,
    "needs-workers": _move_needing_workers,
    "schedule": _move_schedule,
    "fixed": _move_fixed,
    "equal": _move_equal,
    "multiple": _move_multiple,
}
