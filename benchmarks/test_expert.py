"""The expert's settings of the benchmark are ones that each config and program can take."""

import pytest

from advisor import config as documents
from benchmarks.expert.__main__ import CASES, Case, expert_command, laid_out

CONFIGS = [case for case in CASES if case.config]


@pytest.mark.parametrize("case", CONFIGS, ids=lambda case: case.name)
def test_the_experts_config_differs_by_its_settings_and_by_nothing_else(
    tmp_path, case: Case
) -> None:
    folder = laid_out(case, tmp_path / "expert")
    assert expert_command(case, folder) == case.command
    before = documents.parse(case.text.encode(), documents.read(folder / case.config).format, "x")
    after = documents.read(folder / case.config)
    held = {path: leaf.value for path, leaf in before.leaves.items()}
    assert {path: leaf.value for path, leaf in after.leaves.items()} == {**held, **case.expert}


def test_there_are_fifteen_of_ten_frameworks_and_one_that_is_as_good_as_it_gets() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 15
    assert len({case.framework for case in CASES}) >= 10
    assert [case.name for case in CASES if not case.expert] == ["accelerate-settled"]
