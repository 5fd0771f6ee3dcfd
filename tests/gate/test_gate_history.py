"""Sessions over days: the prediction interval, drift, and a file that keeps its regressions red."""

import json
import random

import pytest
from gate_examples import program_of, record_of

from advisor.errors import ReportError
from advisor.gate import history
from advisor.gate.history import DailyRate, predict


def sessions(values: list[float], series: str = "train") -> list[DailyRate]:
    return [
        DailyRate(series=series, machine="", created=f"day {n}", sha=f"c{n}", value=value)
        for n, value in enumerate(values)
    ]


def nights(n: int, rate: float = 100, spread: float = 1.0, seed: int = 1) -> list[float]:
    rng = random.Random(seed)
    return [rng.gauss(rate, spread) for _ in range(n)]


@pytest.mark.parametrize(
    ("past", "value", "verdict", "better"),
    [
        ([], 100, "no-baseline", "higher"),
        (nights(9), 100, "inconclusive", "higher"),
        (nights(10), 100, "pass", "higher"),
        (nights(30), 88, "regression", "higher"),
        (nights(30, spread=0.1), 97, "pass", "higher"),  # within the threshold
        (nights(30, spread=8), 90, "pass", "higher"),  # within its noise
        (nights(30), 115, "regression", "lower"),
        (nights(30), 80, "pass", "lower"),
        # a creep is drift, although no night is red
        ([100 * 0.998**n for n in range(30)], 94, "regression", "higher"),
    ],
)
def test_a_drop_beyond_interval_and_threshold_is_red(past, value, verdict, better) -> None:
    found = predict(sessions(past), value, 0.05, better)
    assert found["verdict"] == verdict
    assert ("--base-ref c29" in found["reason"]) is (verdict == "regression")
    assert found["reason"].startswith("drift") is (value == 94)


def test_equal_nights_raise_no_alarm() -> None:
    drawn = [(nights(30, seed=s), nights(1, seed=s + 999)[0]) for s in range(300)]
    found = [predict(sessions(past), new, 0.05, "higher")["verdict"] for past, new in drawn]
    assert found.count("regression") <= 2


def test_more_series_have_to_be_surer() -> None:
    past = sessions(nights(12, spread=1.5))
    notes = [predict(past, 100, 0.01, "higher", series=n)["notes"] for n in (1, 51)]
    alone_pct, among_pct = (float(note.split()[3]) for (note,) in notes)
    assert among_pct > alone_pct


def test_the_window_holds_the_latest_sessions_of_one_series() -> None:
    own = sessions([100.0 + n for n in range(40)])
    past = history.RateHistory(sessions=[*own, *sessions([7], "other")])
    assert [each.value for each in past.window("train")] == [110.0 + n for n in range(30)]


def grown(rates: list[float]) -> history.RateHistory:
    past = history.RateHistory()
    for rate in rates:
        record = record_of(program_of([rate, rate], [rate, rate]), mode="history")
        _, past = history.judge(past, record)
    return past


def test_a_red_session_is_kept_and_never_heals_itself() -> None:
    past = grown([*nights(12), 80, 80, 80])
    assert [s.red for s in past.sessions] == [False] * 12 + [True] * 3
    (series,) = {s.series for s in past.sessions}
    assert [s.value for s in past.window(series)] == pytest.approx(nights(12))


def test_the_file_is_read_back_and_a_malformed_one_named(tmp_path) -> None:
    past, path = grown([100]), tmp_path / "history.json"
    path.write_text(past.model_dump_json())
    assert history.read(path) == past
    path.write_text(json.dumps({"format": 1}))
    with pytest.raises(ReportError, match="no history that"):
        history.read(path)
