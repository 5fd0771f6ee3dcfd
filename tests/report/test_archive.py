"""Reports of earlier calls stay in the state folder, and the next report names them."""

from pathlib import Path

from advisor.report import archive, view
from tests.report import golden


def kept(state: Path) -> list[str]:
    """Outcomes of the kept reports, the oldest first."""
    return [archive.entry(place, report).outcome for place, report in archive.all_of([state])]


def test_what_was_proven_stays_though_a_later_call_proves_nothing(tmp_path) -> None:
    first = golden.report("improved", created="2026-11-01T10:00:00+00:00")
    later = golden.report("not-proven", created="2026-11-02T10:00:00+00:00", config=first.config)
    place = archive.keep(tmp_path, first)
    history = archive.history(archive.all_of([tmp_path]), later)
    text = view.render(later.model_copy(update={"history": history}))
    assert f"2026-11-01 10:00: 1.42x (1.35 to 1.49) (`{place}`)" in text
    archive.keep(tmp_path, later)
    assert kept(tmp_path) == ["1.42x (1.35 to 1.49)", "not proven: 0.94 to 2.02 is possible"]


def test_the_history_is_that_of_the_same_config(tmp_path) -> None:
    archive.keep(tmp_path, golden.report("improved"))
    other = golden.report("improved", config="another.json")
    assert archive.history(archive.all_of([tmp_path]), other) == []


def test_the_oldest_reports_are_removed_and_the_folder_is_its_users(tmp_path) -> None:
    for second in range(archive.MOST_KEPT + 3):
        minute, rest = divmod(second, 60)
        stamp = f"2026-11-01T10:{minute:02}:{rest:02}+00:00"
        archive.keep(tmp_path, golden.report("unchanged", created=stamp))
    names = sorted(path.name for path in (tmp_path / "reports").iterdir())
    assert len(names) == archive.MOST_KEPT
    assert names[0].startswith("20261101100003-")
    assert (tmp_path / "reports").stat().st_mode & 0o077 == 0


def test_the_reports_of_a_project_are_listed_where_they_lie(tmp_path, gpu_advisor) -> None:
    (tmp_path / ".git").mkdir()
    nothing = gpu_advisor.call("report", "--list", cwd=tmp_path)
    assert "No report was kept here yet" in nothing.stdout
    state = tmp_path / ".gpu-advisor"
    state.mkdir()
    place = archive.keep(state, golden.report("improved"))
    listed = gpu_advisor.call("report", "--list", cwd=tmp_path)
    assert str(place) in listed.stdout
    assert "1.42x (1.35 to 1.49)" in listed.stdout
