"""The two programs of a pair have the same values, one in a YAML and one in its code."""

import subprocess

import pytest
import yaml

from benchmarks.expert.__main__ import CLOCK, environment, laid_out
from benchmarks.pairs.__main__ import CASES, PLACES, READS, Pair

ITEMS = "320"


@pytest.mark.parametrize("pair", CASES, ids=lambda pair: pair.name)
def test_the_twin_reads_each_value_where_the_other_has_it(pair: Pair) -> None:
    case = pair.case("config")
    assert yaml.safe_load(case.text) == dict(pair.values)
    twin = case.others["train.py"]
    for name, value in pair.values.items():
        twin = twin.replace(f'config["{name}"]', repr(value))
    assert twin.replace(f"{READS}\n", "") == pair.in_code


@pytest.mark.slow
@pytest.mark.frameworks
@pytest.mark.parametrize("place", PLACES)
def test_both_run_to_their_end_and_print_their_clock(tmp_path, place: str) -> None:
    pair = next(each for each in CASES if each.name == "score_both")
    case = pair.case(place)
    done = subprocess.run(
        case.command,
        cwd=laid_out(case, tmp_path / "program"),
        env=environment(case, ITEMS=ITEMS),
        capture_output=True,
        text=True,
        check=False,
    )
    found = CLOCK.search(done.stdout)
    assert found is not None, done.stderr
    assert found[1] == ITEMS
