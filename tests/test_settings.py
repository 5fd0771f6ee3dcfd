"""gpu-advisor.toml: what is wrong is named, with the line to write instead."""

from pathlib import Path

import pytest

from advisor import settings
from advisor.errors import SettingsError
from advisor.settings import QualityMeasure, parse_duration_s, parse_share

DURATIONS = {
    "90": 90,
    "90s": 90,
    "10m": 600,
    "1.5h": 5400,
    30: 30,
    1.5: 1.5,
    "3m30s": 210,
    "1h5m": 3900,
    " 1h 30m 5s ": 5405,
    "1.5m": 90,
    "2H": 7200,
}
NO_DURATIONS = (
    *("", " ", "ten", "-5m", "0", "0m0s", "10 parsecs", "1h30", "5s3m", "1m2m", "nan"),
    *(True, float("nan"), float("inf"), -3, "9" * 400),
)


def test_a_duration_is_read_in_seconds() -> None:
    assert {text: parse_duration_s(text) for text in DURATIONS} == DURATIONS


@pytest.mark.parametrize("text", NO_DURATIONS)
def test_what_is_no_duration_is_refused_with_the_ways_to_write_one(text) -> None:
    with pytest.raises(ValueError, match="write 90s, 10m, 3m30s or 1h"):
        parse_duration_s(text)


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("0.05", 0.05), (0.1, 0.1)])
def test_a_share_is_read_as_percent_or_fraction(text, share) -> None:
    assert parse_share(text) == share


def write(tmp_path: Path, text: str, name: str = settings.FILE_NAME) -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_misspelled_key_and_a_broken_line_are_named(tmp_path) -> None:
    path = write(tmp_path, '[defaults]\nbugdet = "10m"\n')
    with pytest.raises(SettingsError, match=r"unknown key 'defaults.bugdet'\. Did you mean"):
        settings.load(path)
    with pytest.raises(SettingsError, match="line 1"):
        settings.load(write(tmp_path, "[defaults\n"))


BROKEN = {
    'command = "python \'run.py {config}"': "command .*No closing quotation",
    'command = "p"\nquality-command = "a \'b"': "quality-command",
    'command = "p"\nconfig = "a\\u0000b"': "config .*match pattern",
    'command = "p"\nobjective = "cost"': "objective .*write throughput or latency",
    'command = "p"\nunit-regex = "(["': "unit-regex .*no regular expression",
    'command = "p"\nmetric-regex = "x"': "has no group",
    'command = "p"\n[workload.w.env]\n"A=B" = "c"': "env",
    'command = "p"\n[workload.w.quality.q]\npattern = "(["': "no regular expression",
    'command = "p"\n[workload.w.quality.q]\npattern = "x"\ntolerance = "2 %%"': "tolerance",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_wrong_value_is_named_with_its_key(tmp_path, text) -> None:
    with pytest.raises(SettingsError, match=BROKEN[text]):
        settings.load(write(tmp_path, f"[workload.w]\n{text}\n"))


def test_pyproject_holds_the_same_table_up_to_the_repository(tmp_path) -> None:
    path = write(
        tmp_path,
        '[tool.gpu-advisor.workload.a]\nconfig = "c.yaml"\ncommand = "python t.py {config}"\n',
        "pyproject.toml",
    )
    (tmp_path / "sub").mkdir()
    found = settings.find(tmp_path / "sub")
    assert found == path
    assert settings.load(found).workload_for(tmp_path / "c.yaml") == "a"
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    assert settings.find(tmp_path / "repo") is None


@pytest.mark.parametrize(
    ("better", "tolerance", "limit"),
    [("lower", "2%", 2.04), ("lower", "0.5", 2.5), ("higher", "2%", 1.96)],
)
def test_a_percent_sign_makes_a_tolerance_relative(better, tolerance, limit) -> None:
    table = {"pattern": "x", "better": better, "tolerance": tolerance}
    assert QualityMeasure.model_validate(table).limit(2.0) == pytest.approx(limit)
