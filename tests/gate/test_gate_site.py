"""The page of past sessions: whole in itself, safe to open, and true to the histories."""

from __future__ import annotations

import math
import random
import re
from html.parser import HTMLParser

import pytest

from advisor.errors import OutputRefusedError, ReportError
from advisor.gate import history, site
from advisor.gate.history import History, Series, Session

FACTS = {"gpus": "NVIDIA H100", "driver": "560", "torch": "2.7", "source": "probe"}


def series(name: str, level=lambda _: 0.0, nights: int = 60, **facts: str) -> Series:
    rng = random.Random(name)
    sessions = [
        Session(
            created=f"2026-03-{1 + n % 28:02d}T02:00:00",
            sha=f"{n:040x}",
            units_per_s=100 * math.exp(level(n) + rng.gauss(0, 0.005)),
            processes=4,
        )
        for n in range(nights)
    ]
    return Series(workload=name, unit="sample", facts={**FACTS, **facts}, sessions=sessions)


def stored(*found: Series) -> History:
    return History(series={str(n): each for n, each in enumerate(found)})


def dropped(night: int) -> float:
    return math.log(0.9) if night >= 40 else 0.0


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.leads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.leads += [f"{k}={v}" for k, v in attrs if k in {"src", "href", "action", "data"}]


def test_the_page_asks_the_network_for_nothing_and_runs_nothing() -> None:
    found = Links()
    found.feed(site.page(site.of_history("runner", stored(series("train")))))
    assert not found.leads
    assert not found.tags & {"script", "link", "iframe", "img", "object", "form"}


def test_names_and_commits_cannot_become_markup() -> None:
    nasty = series("<script>alert(1)</script>")
    nasty.sessions[3] = nasty.sessions[3].model_copy(update={"sha": "<img src=x>", "red": True})
    page = site.page(site.of_history("<b>runner</b>", stored(nasty)))
    assert "<script" not in page
    assert "<img" not in page
    assert "<b>" not in page


def test_what_was_lost_comes_first_with_its_commit_and_the_badge_counts_it() -> None:
    past = stored(series("fine"), series("slower", dropped), series("short", nights=4))
    machines = site.of_history("runner", past)
    assert [shown.workload for shown in machines[0].series] == ["slower", "fine", "short"]
    worst = machines[0].series[0]
    assert worst.kind == "lost"
    (change,) = worst.changes
    assert change.sha == f"{40:040x}"[:12]
    assert change.change_pct == pytest.approx(-10, abs=1)
    assert "1 of 2 lost" in site.badge(machines)
    assert "steady" in site.badge(site.of_history("r", stored(series("fine"))))
    assert "not known yet" in site.badge([])


def test_a_gain_is_told_as_one() -> None:
    past = stored(series("train", lambda night: math.log(1.2) if night >= 30 else 0.0))
    ((shown,),) = [machine.series for machine in site.of_history("r", past)]
    assert shown.kind == "won"
    assert re.match(r"(19|20)\.\d % faster", shown.state)


def test_a_loss_that_was_recovered_is_no_gain() -> None:
    past = stored(series("train", lambda night: math.log(0.9) if 20 <= night < 40 else 0.0))
    ((shown,),) = [machine.series for machine in site.of_history("r", past)]
    assert (shown.kind, shown.state) == ("steady", "recovered")


def test_machines_and_runners_stand_apart() -> None:
    past = stored(series("train"), series("train", gpus="NVIDIA H200"))
    machines = [*site.of_history("one", past), *site.of_history("two", stored(series("train")))]
    assert [(m.runner, m.title.split(",")[0]) for m in machines] == [
        ("one", "NVIDIA H100"),
        ("one", "NVIDIA H200"),
        ("two", "NVIDIA H100"),
    ]
    page = site.page(machines)
    assert page.count("<article>") == 3
    assert page.count('<circle class="dot"') == 3 * 60


@pytest.mark.parametrize("nights", [0, 1, 2, 5])
def test_few_sessions_are_drawn_too(nights: int) -> None:
    page = site.page(site.of_history("r", stored(series("train", nights=nights))))
    assert page.count('<circle class="dot"') == nights
    assert "nan" not in page.lower()


def test_it_is_written_from_the_command_line_and_never_over_anothers_file(tmp_path) -> None:
    from advisor.__main__ import main

    path, folder = tmp_path / "gate-history.json", tmp_path / "site"
    path.write_bytes(history.dump(stored(series("train"))))
    call = ["gate", "--site", str(folder), "--histories", str(path)]
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            main(call)
        assert not ended.value.code
    assert sorted(place.name for place in folder.iterdir()) == ["badge.svg", "index.html"]
    (folder / "index.html").write_text("mine")
    with pytest.raises(OutputRefusedError):
        site.write(folder, [path])
    path.write_text("{")
    with pytest.raises(ReportError):
        site.write(folder, [path])
