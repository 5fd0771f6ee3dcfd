"""Rates measured on cards: taken by an interpreter's torch, kept, and used in predictions."""

import json
import sys
from pathlib import Path

import pytest

from advisor.machine import profiles
from advisor.machine.calibration import REACHED, Rates, applied, keep, kept
from advisor.prediction.estimate import step_time
from advisor.prediction.trace import MATRIX, OTHER, Operation, Trace
from advisor.probe import torch_info
from tests import simulated_gpu
from tests.gpu.conftest import LARGE, SMALL

CARD = profiles.by_name("h100-sxm")
FACTS = {"name": "NVIDIA H100 80GB HBM3", "memory_gib": 79.2, "measured_on": "2026-01-02"}
FOUND = {"bandwidth_gb_per_s": 900, "launch_s": 2e-5, "fp32_tflops": 9, "fp16_tflops": 90}
SLOW = Rates.model_validate({**FACTS, **FOUND})


def test_a_newer_calibration_takes_the_place_of_the_card_s_older_one(tmp_path: Path) -> None:
    assert kept(tmp_path) == ()
    other, newer = (SLOW.model_copy(update=new) for new in ({"name": "x"}, {"fp32_tflops": 10.0}))
    keep(tmp_path, [SLOW, other])
    keep(tmp_path, [newer])
    assert kept(tmp_path) == (newer, other)


def test_a_prediction_takes_the_rates_that_were_measured_on_such_a_card() -> None:
    found = applied(CARD, [SLOW])
    assert found.measured_on == "2026-01-02"
    assert found.tf32_tflops == CARD.tf32_tflops
    product = Operation(MATRIX, "float16", 90e12, 8.0, "mm")
    copy, launch = (Operation(OTHER, "float16", 0.0, size, "add") for size in (900e9, 8.0))
    for ops, expected_s in (((product, copy), REACHED / 0.9 + REACHED / 0.7), ((launch,), 2e-5)):
        step = Trace(batch=1, ops=ops, held=(), events=())
        assert step_time(step, found).seconds == pytest.approx(expected_s)
    assert applied(profiles.by_name("rtx-3090"), [SLOW]) == profiles.by_name("rtx-3090")


@pytest.mark.slow
def test_rates_are_measured_as_a_profile_names_them() -> None:
    found = torch_info.rates(pytest.importorskip("torch"), "cpu")
    assert min(found.values()) > 0
    assert {*found, "name", "memory_gib", "measured_on"} == set(Rates.model_fields)


@pytest.mark.slow
def test_every_card_is_measured_in_the_user_s_own_torch(gpu_advisor, tmp_path) -> None:
    """And kept in the project: with simulated cards no launch is shorter than their kernels."""
    pytest.importorskip("torch")
    (tmp_path / ".git").mkdir()
    env = simulated_gpu.environment((LARGE, SMALL))
    words = ("doctor", "--calibrate", "--json", "--", sys.executable, "x.py")
    done = gpu_advisor.call(*words, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    found = kept(tmp_path / ".gpu-advisor")
    assert [each.model_dump() for each in found] == json.loads(done.stdout)["cards"]
    assert [each.name for each in found] == [LARGE.name, SMALL.name]
    assert all(each.launch_s >= 4e-6 for each in found)
    without = gpu_advisor.call(*words, cwd=tmp_path)
    assert without.returncode == 1
    assert "no card" in without.stdout
