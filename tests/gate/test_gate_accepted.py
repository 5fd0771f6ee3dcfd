"""A maintainer accepts a named slowdown once: by a label, or by a line in base's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from gate_engine import in_process
from gate_examples import around, program_of

from advisor.errors import SettingsError
from advisor.gate import accepted, modes, report, texts
from advisor.gate.accepted import DEFAULT_LABEL
from advisor.gate.base import Checkout
from advisor.gate.records import Acceptance, HostEntry, Inputs, Revision
from advisor.gate.verdict import decide
from advisor.gate.workbench import decided
from advisor.settings import load

if TYPE_CHECKING:
    from pathlib import Path

SLOWER = program_of(around(100), around(90))
"""10 % slower."""
SHA = "c0ffee" + "0" * 34


def by_ann(up_to: float, workload: str = "train") -> Inputs:
    why = "the new loss needs it"
    accepted_ = Acceptance(workload=workload, up_to=up_to, by="label", who="ann", why=why)
    return Inputs(accepted=[accepted_])


# --- what an acceptance does --------------------------------------------------------------


def test_an_accepted_slowdown_is_no_red_and_says_who_and_why() -> None:
    record = decided([SLOWER], by_ann(0.12), HostEntry(), "ab")
    assert record.verdict == "pass"
    workload = record.workloads[0]
    assert (workload.verdict, workload.accepted.who) == ("regression", "ann")
    for text in (report.lines(record), report.comment(record)):
        assert "**Accepted slowdown**" in text
        assert "up to 12 % accepted by ann: the new loss needs it" in text
    assert texts.GateRecord.model_validate_json(texts.dump(record)) == record


def test_a_larger_slowdown_than_was_accepted_is_red() -> None:
    """A later push to the same request cannot hide behind it."""
    found = decide([SLOWER], by_ann(0.08))
    assert found.verdict == "regression"
    assert "more than the 8 % accepted by ann" in found.reason


def test_another_workload_is_not_accepted() -> None:
    other = program_of(around(50), around(40), "infer")
    found = decide([SLOWER, other], by_ann(0.12))
    assert found.verdict == "regression"
    assert found.leading.name == "infer"
    assert decide([SLOWER], by_ann(0.12, "infer")).verdict == "regression"


def test_an_acceptance_changes_nothing_else() -> None:
    """What passes, or is undecided, has nothing to be accepted."""
    same = program_of(around(100), around(99.9))
    assert decide([same], by_ann(0.5)) == decide([same], Inputs())


# --- labels -------------------------------------------------------------------------------


@pytest.fixture
def base(repo) -> Checkout:
    return Checkout(top=repo.path, cwd=repo.path, revision=Revision(sha=SHA))


def labelled(*names: str, fork: bool = False, **event: Any) -> dict[str, Any]:
    ours = {"full_name": "us/project", "id": 1}
    theirs = {"full_name": "them/project", "id": 2} if fork else ours
    labels = [{"name": name, "description": "agreed on Monday"} for name in names]
    pull = {
        "number": 7, "user": {"login": "author"}, "labels": labels,
        "head": {"sha": SHA, "repo": theirs}, "base": {"repo": ours},
    }  # fmt: skip
    return {"pull_request": pull, **event}


def found(repo, base: Checkout, event: dict[str, Any], label: str = DEFAULT_LABEL):
    repo.on_github(event)
    return accepted.find(label, base, base, repo.env)


def test_a_label_on_the_request_names_what_is_accepted_and_how_much(repo, base) -> None:
    event = labelled("bug", "slowdown accepted: suite: b.py::test_x up to 12.5 %")
    assert found(repo, base, event).accepted == (
        Acceptance(
            workload="suite: b.py::test_x",
            up_to=0.125,
            by="label",
            who=None,
            why="agreed on Monday",
        ),
    )


def test_who_set_the_label_is_told_by_the_event_of_that_act_alone(repo, base) -> None:
    name = "slowdown accepted: train 12%"
    act = {"action": "labeled", "label": {"name": name}, "sender": {"login": "ann"}}
    assert found(repo, base, labelled(name, **act)).accepted[0].who == "ann"
    other = {**act, "label": {"name": "bug"}}
    assert found(repo, base, labelled(name, **other)).accepted[0].who is None


def test_a_label_that_the_forks_own_author_set_accepts_nothing(repo, base) -> None:
    name = "slowdown accepted: train 12%"
    act = {"action": "labeled", "label": {"name": name}, "sender": {"login": "author"}}
    seen = found(repo, base, labelled(name, fork=True, **act))
    assert seen.accepted == ()
    assert "the fork's own author set it" in seen.notes[0]
    assert found(repo, base, labelled(name, **act)).accepted


@pytest.mark.parametrize(
    "name", ["slowdown accepted", "slowdown accepted: train", "slowdown accepted: 12%",
             "slowdown accepted train 12%"],
)  # fmt: skip
def test_a_label_that_does_not_name_it_accepts_nothing_and_says_how(repo, base, name) -> None:
    seen = found(repo, base, labelled(name))
    assert seen.accepted == ()
    assert "slowdown accepted: train 12%" in seen.notes[0]


def test_the_labels_name_is_configurable_and_empty_is_off(repo, base) -> None:
    event = labelled("perf-ok: train 12%", "slowdown accepted: infer 12%")
    assert [a.workload for a in found(repo, base, event, "perf-ok").accepted] == ["train"]
    assert found(repo, base, event, "").accepted == ()


@pytest.mark.parametrize(
    "event",
    [
        {}, {"pull_request": None}, {"pull_request": {"labels": "x"}},
        {"pull_request": {"labels": [None, 3, {"name": 3}, {}]}},
        {"pull_request": {"labels": [{"name": "slowdown accepted: train 12%", "description": 5}]}},
        {"label": "x", "sender": 3, "action": "labeled",
         "pull_request": {"labels": [{"name": "slowdown accepted: train 12%"}], "head": 3}},
    ],
)  # fmt: skip
def test_an_event_of_another_form_breaks_nothing(repo, base, event: dict[str, Any]) -> None:
    assert len(found(repo, base, event).accepted) <= 1


# --- base's settings ----------------------------------------------------------------------

LINE = (
    'accepted = [{{workload = "train", up-to = "12%", of = "{of}", who = "ann", why = "loss"}}]\n'
)


@pytest.mark.parametrize(
    ("of", "counts"), [("#7", True), ("#8", False), (SHA[:7], True), ("abcdef0", False)]
)
def test_a_line_of_base_accepts_of_one_request_or_commit(repo, base, of, counts) -> None:
    (repo.path / "gpu-advisor.toml").write_text(LINE.format(of=of))
    seen = found(repo, base, labelled())
    assert [(a.by, a.who, a.why) for a in seen.accepted] == (
        [("base's settings", "ann", "loss")] if counts else []
    )


@pytest.mark.parametrize("of", ["", "#0", "#", "main", "abcdef", "#7 "])
def test_a_line_that_would_hold_for_ever_is_refused(tmp_path: Path, of: str) -> None:
    path = tmp_path / "gpu-advisor.toml"
    path.write_text(LINE.format(of=of))
    with pytest.raises(SettingsError, match="of"):
        load(path)


@pytest.mark.parametrize(("side", "verdict"), [("base", "pass"), ("head", "regression")])
def test_a_request_cannot_accept_its_own_slowdown(
    repo, tmp_path, monkeypatch, side: str, verdict: str
) -> None:
    """What head's settings accept does not count; what base's do, does."""
    line = LINE.format(of="#7").replace('"train"', '"command"')
    repo.commit({"rate": "100", "gpu-advisor.toml": line if side == "base" else ""})
    sha = repo.commit({"rate": "90", "gpu-advisor.toml": line if side == "head" else ""})
    event = labelled()
    event["pull_request"]["head"]["sha"] = sha
    event["pull_request"]["base"] |= {"sha": repo.git("rev-parse", "HEAD^"), "ref": "main"}
    monkeypatch.setenv("GITHUB_EVENT_PATH", repo.on_github(event).env["GITHUB_EVENT_PATH"])
    record = in_process(repo.path, tmp_path, monkeypatch, modes)(modes.ab)
    assert record.verdict == verdict, record.reason
    assert record.workloads[0].verdict == "regression"
    assert bool(record.workloads[0].accepted) == (side == "base")
