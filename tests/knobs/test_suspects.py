"""Suspects: values that equal what was seen. The documents are real, the effects are given."""

from typing import Any

import pytest

from advisor import config as documents, knobs
from advisor.config import Document
from advisor.knobs import discovery
from advisor.knobs.discovery import KINDS, Followed, Move, Suspect, observed
from advisor.model import Effects

ANY = ("train", "eval", "test", "any")


def seen(**effects: Any) -> Effects:
    """A program that loads 20 at a time with 4 workers."""
    return Effects(**{"batch_asked": 20, "batch": 20.0, "workers": 4, **effects})


def config(text: str) -> Document:
    return documents.parse(text.encode(), "yaml", "config.yaml")


def command(*words: str) -> Document:
    return documents.of_command(["python", "train.py", *words])


def suspected(effects: Effects, *found: Document) -> tuple[Suspect, ...]:
    pairs = [(document, knobs.find(document)) for document in found]
    kinds = discovery.open_kinds((f for _, f in pairs), effects, KINDS, ANY)
    return discovery.find_suspects(pairs, effects, kinds)


def paths(effects: Effects, *found: Document) -> list[str]:
    return [each.path for each in suspected(effects, *found)]


def moved(effects: Effects, *found: Document, **how: Any) -> dict[str, Move]:
    return {
        m.suspect.path: m
        for m in discovery.trial_values(suspected(effects, *found), effects, **how)
    }


SEEN: list[tuple[str, dict[str, Any]]] = [
    ("zorp: 20", {}),
    ("zorp: '20'", {}),
    ("zorp: 20.0", {}),
    # a global batch is not what the loader was built with, and decides it none the less
    ("zorp: 80", {"accumulation": 4.0}),
    ("zorp: 40", {"world_size": 2}),
    ("zorp: 160", {"world_size": 2, "accumulation": 4.0}),
    ("zorp: 1000", {"forwards_per_unit": 1000.0}),
    ("zorp: 500", {"forwards_per_unit": 1000.0}),
    ("batch_size: 64\nzorp: 20", {}),  # batches of 20 do not follow that name
]


@pytest.mark.parametrize(("text", "effects"), SEEN)
def test_a_value_that_explains_what_was_seen_is_a_suspect_whatever_it_is_called(
    text, effects
) -> None:
    """In any section of any document."""
    assert paths(seen(**effects), config(text)) == ["zorp"]
    nested = config(f"plum: {{zorp: {text.rpartition(' ')[2]}, frell: 21}}\n")
    assert paths(seen(**effects), nested, command("--quonk", "4")) == ["plum.zorp", "--quonk"]
    assert paths(seen(), config("zorp: &a 20\nfrell: *a")) == ["zorp"], "the other repeats it"


@pytest.mark.parametrize(
    "text",
    [
        "seed: 20", "port: 20", "n_epochs: 20", "hidden_dim: 20", "log_every: 20", "gpu: 20",
        "num_layers: 20", "embed_size: 20", "zorp: true", "zorp: [20, 20]", "zorp: 20.5",
        "zorp: 20  # must be 20", "lr: 20", "nbs: 20",
        "batch_size: 20\nzorp: 20", "batch_size: auto\nzorp: 20", "batch_size: null\nzorp: 20",
        "batch_size: 4096\nbatch_type: token\nzorp: 20",
    ],
)  # fmt: skip
def test_what_a_name_or_a_comment_speaks_against_is_none(text) -> None:
    """Nor one where a name explains it, or may: `auto` stands elsewhere, tokens are no samples."""
    assert paths(seen(workers=None), config(text)) == []


def test_a_part_of_the_network_is_moved_only_where_nothing_else_can_be_it() -> None:
    """A layer of another size may not fit the next one."""
    assert paths(seen(), config("model: {zorp: 20}\nplum: {frell: 20}")) == ["plum.frell"]
    assert paths(seen(), config("model: {zorp: 20}")) == ["model.zorp"]


def test_a_name_that_speaks_for_one_kind_is_not_suspected_of_another() -> None:
    """Four readers are workers, also where the batch is 4."""
    (one,) = suspected(seen(batch_asked=4), config("io: {readers: 4}"))
    assert one.kinds == {"num_workers"}


def test_every_suspect_shows_as_itself() -> None:
    """No two would show alike, and none as what was seen before; else it is left out."""
    text = "".join(f"zorp{n}: 20\n" for n in range(8)) + "".join(f"vex{n}: 4\n" for n in range(6))
    found = moved(seen(accumulation=4.0), config(text + "frell: 80\n"))
    assert len(found) >= 14
    for kind in KINDS[:3]:
        shown = [
            {trace.shown(move.new, seen(accumulation=4.0)) for trace in signs}
            for move in found.values()
            if (signs := [each for each in move.suspect.signs if each.shown_in == kind])
        ]
        assert all(not one & other for i, one in enumerate(shown) for other in shown[:i])
        assert observed(kind, seen(accumulation=4.0)) not in set().union(*shown)


def test_without_room_for_more_values_go_down() -> None:
    """Twice the batch would not fit, and the experiment is not to fail for that."""
    assert moved(seen(), config("zorp: 20"))["zorp"].new == 40
    assert moved(seen(), config("zorp: 20"), room=1.5)["zorp"].new == 10
    assert moved(seen(), config("zorp: 20"), lower=True)["zorp"].new == 10


def test_of_values_that_are_alike_one_divides_the_other() -> None:
    """And the other way round the next time: heads must divide a width, whichever is which."""
    text = config("zorp: 20\nfrell: 20\nplum: 20")
    assert [move.new for move in moved(seen(), text).values()] == [40, 80, 160]
    assert [move.new for move in moved(seen(), text, backwards=True).values()] == [160, 80, 40]


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("accumulation", [2, 3, 5])
def test_no_value_shows_as_a_batch_that_is_shared_out_anew(accumulation, lower) -> None:
    """The accumulation is moved too, and may divide a batch that was moved, or stands in code."""
    batch = 12 * accumulation
    before = seen(batch_asked=12, accumulation=float(accumulation), workers=0)
    text = config(f"zorp: {batch}\nvex: {accumulation}\nfrell: 12\nplum: 12")
    found = moved(before, text, lower=lower)
    decoys = {found["frell"].new, found["plum"].new}
    for total in (batch, found["zorp"].new):
        for parts in (accumulation, found["vex"].new):
            assert int(str(total)) // int(str(parts)) not in decoys


def test_no_run_gets_more_workers_than_a_host_can_bear() -> None:
    """A value that may be the workers is not multiplied beyond reason."""
    text = "".join(f"zorp{n}: 4\n" for n in range(6))
    assert all(int(move.new) <= 12 for move in moved(seen(), config(text)).values())


def read(
    before: Effects, after: dict[str, Any], *found: Document
) -> tuple[list[Followed], set[str]]:
    """What is read off a run of the moved values in which `after` was seen."""
    pairs = [(document, knobs.find(document)) for document in found]
    kinds = discovery.open_kinds((f for _, f in pairs), before, KINDS, ANY)
    moves = discovery.trial_values(discovery.find_suspects(pairs, before, kinds), before)
    return discovery.read_outcome(moves, before, seen(**after), kinds)


def test_a_change_that_no_single_value_explains_is_left_open() -> None:
    """Two of them together, or something else: nothing is claimed."""
    found = read(seen(), {"batch_asked": 33}, config("zorp: 20\nfrell: 20"))
    assert found == ([], {"batch_size"})
    found = read(seen(), {"workers": None}, config("zorp: 4"))
    assert found == ([], {"num_workers"})


def test_a_global_batch_may_decide_the_accumulation() -> None:
    """80 in one update by batches of 20: twice 80 makes eight batches, and is a batch."""
    found = read(
        seen(accumulation=4.0, workers=0), {"accumulation": 8.0, "workers": 0}, config("zorp: 80")
    )
    (one,), _ = found
    shown = (one.move.suspect.path, one.sign.kind, one.sign.scope)
    assert shown == ("zorp", "batch_size", "global")
