"""Steps: the right one of several cards, by number, by UUID and in MIG slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.machine.cards import same_uuid
from advisor.model import Run
from benchmarks.gpu.bench import told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.gpu.bench import Bench
    from benchmarks.gpu.record import Line

LOOP = ("--train", "--kernel", "4")
MEND = "advisor/probe/cards.py, advisor/machine/cards.py, and machine/gpu.py _visible"


def right_card(bench: Bench) -> Iterator[Line]:
    """The card that is told is the one that the model is on."""
    cards = bench.card.get("cards", [])
    result = bench.measured(*LOOP, limit_s=60.0)
    used = result.cards if isinstance(result, Run) else ()
    own = bench.card.get("uuid")
    yield bench.line(
        "the card of a plain program", f"{own}", str([card.uuid for card in used]) or told(result),
        bool(used) and (own is None or same_uuid(used[0].uuid, own)), MEND,
    )  # fmt: skip
    if own is not None and not bench.simulated:
        uuid = own if own.startswith(("GPU-", "MIG-")) else f"GPU-{own}"
        result = bench.measured(*LOOP, environ={"CUDA_VISIBLE_DEVICES": uuid}, limit_s=60.0)
        yield bench.line(
            "the card chosen by UUID", own, told(result),
            isinstance(result, Run) and any(same_uuid(c.uuid, own) for c in result.cards), MEND,
        )  # fmt: skip
    if len(cards) < 2:
        yield bench.line("a second card", "", "there is one card: not looked at", None)
    else:
        other = cards[1]
        result = bench.measured(*LOOP, "--device", "cuda:1", limit_s=60.0)
        used = result.cards if isinstance(result, Run) else ()
        yield bench.line(
            "a program on cuda:1", str(other["uuid"]), str([c.uuid for c in used]) or told(result),
            bool(used) and same_uuid(used[0].uuid, other["uuid"]), MEND,
        )  # fmt: skip
    if not any("MIG" in str(card["name"]) for card in cards):
        yield bench.line("a MIG slice", "", "there is none: not looked at", None)
    elif isinstance(result, Run):
        yield bench.line(
            "memory of a MIG slice", f"{bench.total_gib:.1f} GiB",
            str([card.total_gib for card in result.cards]),
            any(abs((c.total_gib or 0) / bench.total_gib - 1) < 0.03 for c in result.cards), MEND,
        )  # fmt: skip
