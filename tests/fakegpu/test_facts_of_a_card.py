"""What the tool says of a card, over torch's own CUDA build: each figure against the card's own."""

import pytest

from advisor.machine import profiles
from advisor.model import MeasurePlan
from advisor.report.bottleneck import diagnose
from tests.fakegpu.conftest import Measure
from tests.fakegpu.measuring import Measured

PARTS = MeasurePlan(measure_s=1.0, min_steps=8, ceilings_workers=(0,), ceilings_s=0.1)
"""With the operations of a step counted after the window."""


def line(found: Measured, begins: str) -> str:
    """The line of evidence that begins so; empty without one."""
    (card,) = found.run.cards
    profile = profiles.match(card.name or "", card.total_gib)
    lines = diagnose([found.run, found.run], profile=profile).evidence
    return next((each for each in lines if each.startswith(begins)), "")


def test_a_card_that_others_hold_is_the_cause(measured: Measure):
    """The program would fit the empty card: others lead, and no batch is the remedy."""
    found = measured("cuda_zoo.py", "full", card={"full_gib": 22.0}).result
    assert found.kind == "gpu-fault"
    assert found.evidence.startswith("others hold 22.0 of 23.7 GiB of the card")
    assert "batch" not in found.next_step


def test_a_driver_older_than_torchs_cuda_is_named(measured: Measure):
    """The card itself is fine."""
    found = measured("cuda_zoo.py", "plain", card={"driver": 12040}).result
    assert found.kind == "gpu-fault"
    assert found.next_step.startswith("The driver is older than the CUDA of this torch")


def test_a_transform_works_in_memory_of_its_size(measured: Measure):
    """Pictures of 1.5 MiB a batch: no garbage work size, which would not fit the card."""
    found = measured("cuda_zoo.py", "spectral")
    assert 0 < found.run.peak_device_gib < 1
    assert found.busy() > 0


def test_clocks_that_are_held_down_are_told(measured: Measure):
    """With NVML's reason; a hot card's run is no fair one."""
    held = {"clock": 0.6, "reasons": 0x40}
    found = measured("cuda_zoo.py", "timed", "--ms", "20", card=held)
    assert found.run.telemetry.sm_clock_mhz == pytest.approx(0.6 * 1695, rel=0.01)
    assert line(found, "The GPU held its clocks down for hardware thermal slowdown")
    assert found.run.disturbance.disturbed


@pytest.mark.parametrize("where", ["copy", "loss", "step"])
def test_work_lost_to_memory_is_no_rate(where, measured: Measure):
    """Each fourth batch is swallowed by the program, wherever its memory ran out."""
    found = measured("cuda_zoo.py", f"lost-{where}", "--ms", "10").result
    assert getattr(found, "kind", "a run") == "work-not-done"


TWO = {"cards": ("h100", "rtx-3090"), "env": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}}


@pytest.mark.parametrize("cap_gib", [None, 4.0])
def test_no_context_is_opened_on_a_card_that_is_not_used(cap_gib, measured: Measure):
    """One takes 400 MB of it, for a memory cap or for a question."""
    plan = MeasurePlan(measure_s=0.5, min_steps=8, memory_cap_gib=cap_gib)
    found = measured("cuda_zoo.py", "inference", "--device", "cuda:1", plan=plan, **TWO)
    assert found.run.effects.device == "cuda:1"
    assert found.cards.totals(0).contexts == 0


def test_a_memory_cap_holds_on_the_card_that_is_used(measured: Measure):
    """Whichever of several it is."""
    plan = MeasurePlan(measure_s=0.5, min_steps=8, memory_cap_gib=4.0)
    words = ("inference", "--device", "cuda:1", "--side", "1024", "--batch", "64")
    fits = measured("cuda_zoo.py", *words, plan=MeasurePlan(measure_s=0.5, min_steps=3), **TWO)
    assert fits.run.peak_device_gib > 4
    assert measured("cuda_zoo.py", *words, plan=plan, **TWO).result.kind == "gpu-oom"


@pytest.mark.parametrize(
    ("kind", "tf32"), [("plain", True), ("recurrent", True), ("matrices", False)]
)
def test_tf32_is_read_from_the_switch_of_the_products_that_run(kind, tf32, measured: Measure):
    """By default convolutions and recurrent layers use it, and matrix products do not."""
    found = measured("cuda_zoo.py", kind, cards=("h100",), plan=PARTS)
    assert found.run.effects.tf32 is tf32
    (most, *_) = sorted(found.run.flops.by_dtype, key=lambda each: -each[1])
    assert most[0] == ("tf32" if tf32 else "float32")


def test_no_program_passes_what_its_card_can(measured: Measure):
    """Convolutions of an H100 in TF32 do more than its float32 rate."""
    words = ("plain", "--width", "512", "--side", "128")
    found = measured("cuda_zoo.py", *words, cards=("h100",), plan=PARTS)
    assert found.run.achieved_tflops > 67, "the rate at float32"
    text = line(found, "Matrix products")
    assert "495 at tf32" in text
    assert 0 < float(text.split("included: ")[1].split(" %")[0]) < 100
