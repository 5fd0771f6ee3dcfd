"""Sessions over days: the prediction interval, drift, and a file that keeps its regressions red."""

from __future__ import annotations

import json
import random

import pytest
from gate_examples import program_of

from advisor.errors import ReportError
from advisor.gate import history
from advisor.gate.history import Series, Session, predict
from advisor.gate.runner import decided
from advisor.gate.schema import HostEntry, Inputs


def series(values: list[float], **more) -> Series:
    sessions = [
        Session(created=f"day {n}", sha=f"c{n}", value=value, processes=4)
        for n, value in enumerate(values)
    ]
    return Series(
        program="train", benchmark=None, definition="d", unit="sample", facts={},
        sessions=sessions, **more,
    )  # fmt: skip


def nights(n: int, rate: float = 100, spread: float = 1.0, seed: int = 1) -> list[float]:
    rng = random.Random(seed)
    return [rng.gauss(rate, spread) for _ in range(n)]


def test_a_baseline_needs_ten_sessions() -> None:
    assert predict(series([]), 100, 0.05).verdict == "no-baseline"
    assert predict(series(nights(9)), 100, 0.05).verdict == "inconclusive"
    assert predict(series(nights(10)), 100, 0.05).verdict == "pass"


def test_a_drop_beyond_interval_and_threshold_is_red() -> None:
    """Either alone is not: a quiet series within the threshold, a noisy one within its noise."""
    past = series(nights(30))
    assert predict(past, 88, 0.05).verdict == "regression"
    assert "c29" in predict(past, 88, 0.05).reason
    assert predict(series(nights(30, spread=0.1)), 97, 0.05).verdict == "pass"
    assert predict(series(nights(30, spread=8)), 90, 0.05).verdict == "pass"


def test_a_creep_is_drift_although_no_night_is_red() -> None:
    values = [100 * 0.998**n for n in range(30)]
    found = predict(series(values), 94, 0.05)
    assert (found.verdict, found.reason.partition(":")[0]) == ("regression", "drift")


def test_equal_nights_raise_no_alarm() -> None:
    alarms = sum(
        predict(series(nights(30, seed=s)), nights(1, seed=s + 999)[0], 0.05).verdict
        == "regression"
        for s in range(300)
    )
    assert alarms <= 2


def test_more_series_have_to_be_surer() -> None:
    past = series(nights(12, spread=1.5))
    alone, among = predict(past, 100, 0.01), predict(past, 100, 0.01, beside=50)
    assert among.limit_pct > alone.limit_pct


def test_a_lower_value_may_be_better() -> None:
    past = series(nights(30), better="lower")
    assert predict(past, 115, 0.05).verdict == "regression"
    assert predict(past, 80, 0.05).verdict == "pass"


def record_of(rate: float):
    program = program_of([rate, rate], [rate, rate])
    return decided([program], Inputs(), HostEntry(), "history"), program


def test_a_red_session_is_kept_and_never_heals_itself() -> None:
    past = history.History()
    for rate in [*nights(12), 80, 80, 80]:
        record, program = record_of(rate)
        verdicts, past = history.judge(past, program, record)
    assert verdicts[0].verdict == "regression"
    (kept,) = past.series.values()
    assert [s.red for s in kept.sessions] == [False] * 12 + [True] * 3
    rebased = [s.model_copy(update={"rebase": n == 12, "red": False})
               for n, s in enumerate(kept.sessions)]  # fmt: skip
    assert len(kept.model_copy(update={"sessions": rebased}).window) == 3
    assert [s.value for s in kept.window] == pytest.approx(nights(12))


def test_the_file_is_read_back_and_a_malformed_one_named(tmp_path) -> None:
    record, program = record_of(100)
    _, past = history.judge(history.History(), program, record)
    path = tmp_path / "history.json"
    path.write_bytes(history.dump(past))
    assert history.read(path) == past
    path.write_text(json.dumps({"format": 1}))
    with pytest.raises(ReportError, match="no history of format 2"):
        history.read(path)


def test_rates_are_exported_for_other_tools() -> None:
    record, _ = record_of(100)
    (entry,) = history.export(record)
    assert (entry["name"], entry["unit"], entry["value"]) == (
        "train", "sample/s", pytest.approx(100),
    )  # fmt: skip
