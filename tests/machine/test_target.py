"""What `--target` means on a machine: the card itself, a larger one standing in, or neither."""

from dataclasses import replace

import pytest

from advisor.machine import profiles, target
from advisor.model import Card, Gpu, Machine
from tests.runs import a_gpu
from tests.support.simulator.engine import QUIET_MACHINE

CPU_ONLY = replace(QUIET_MACHINE, gpu_note="No NVIDIA driver is installed on this host.")

H100 = a_gpu("NVIDIA H100 80GB HBM3", 79.6, "9.0")
RTX_3090 = a_gpu("NVIDIA GeForce RTX 3090", 24.0, "8.6", index=1)
V100 = a_gpu("Tesla V100-SXM2-32GB", 32.0, "7.0")
UNKNOWN = a_gpu("NVIDIA RTX 5000 Ada Generation", 32.0, "8.9")


FULL = replace(H100, memory_free_gib=10.0)


def machine(*gpus: Gpu) -> Machine:
    return replace(CPU_ONLY, gpus=gpus, gpu_note=None)


@pytest.mark.parametrize(
    ("name", "here", "found", "stood_in", "note"),
    [
        ("auto", CPU_ONLY, "cpu", False, ""),
        ("auto", machine(H100, RTX_3090), "h100-sxm", False, ""),
        ("auto", machine(UNKNOWN), UNKNOWN.name, False, ""),
        ("rtx-3090", machine(H100, RTX_3090), "rtx-3090", False, ""),
        ("RTX 3090", machine(H100), "rtx-3090", True, "memory capped to 21.5 GiB"),
        ("h100-sxm", CPU_ONLY, "h100-sxm", False, "All figures are those of this CPU (recorded)."),
        ("h200-sxm", machine(H100), "h200-sxm", False, f"All figures are those of {H100.name}."),
        ("rtx-3090", machine(V100), "rtx-3090", False, "lacks the free memory or the precisions"),
        ("rtx-3090", machine(FULL), "rtx-3090", False, "lacks the free memory or the precisions"),
    ],
)
def test_a_target_is_the_card_itself_a_larger_one_or_neither(
    name, here, found, stood_in, note
) -> None:
    aimed = target.resolve(name, here)
    assert aimed.name == found
    assert (aimed.memory_cap_gib is not None) is stood_in
    assert aimed.present == (not stood_in and "figures are those of" not in aimed.note)
    assert note in aimed.note
    assert bool(note) == bool(aimed.note)


def test_a_target_has_the_precisions_and_the_memory_of_its_card() -> None:
    """One that is not the first hides every other."""
    assert target.resolve("auto", CPU_ONLY).precisions == ("float32", "bfloat16")
    assert target.resolve("auto", machine(UNKNOWN)).precisions[1:] == ("float16", "bfloat16")
    assert target.resolve("t4", machine(H100)).precisions == ("float32", "float16")
    second = target.resolve("rtx-3090", machine(H100, RTX_3090))
    assert second.environment == (("CUDA_VISIBLE_DEVICES", "GPU-1"),)
    first = target.resolve("rtx-3090", machine(H100))
    assert first.memory_cap_gib == profiles.usable_gib(profiles.by_name("rtx-3090"))


def on(uuid: str | None, name: str = "NVIDIA GeForce RTX 3090") -> Card:
    return Card(
        index=0, name=name, uuid=uuid, total_gib=24.0, available_gib=22.0, compute_capability="8.6"
    )


def test_the_card_that_the_program_is_on_is_the_target() -> None:
    """CUDA may put another card first than NVML does; one asked for by name stays."""
    here = machine(H100, RTX_3090)
    aimed = target.resolve("auto", here)
    found = target.computed_on(aimed, here, on("1"))
    assert found.name == "rtx-3090"
    assert found.gpu == RTX_3090
    assert target.computed_on(aimed, here, on("0")) == aimed
    assert target.computed_on(aimed, here, on(None)) == aimed, "an older torch does not say"
    named = target.resolve("rtx-3090", machine(H100))
    assert target.computed_on(named, machine(H100), on("9", "other")) == named


def test_a_card_that_nvml_does_not_show_is_still_a_card() -> None:
    """In a container without NVML its memory is that of `mem_get_info`, never the host's."""
    nothing = target.resolve("auto", CPU_ONLY)
    found = target.computed_on(nothing, CPU_ONLY, on("7"))
    assert found.name == "rtx-3090"
    assert found.note == ""
    assert found.gpu.memory_free_gib == 22.0
    assert found.gpu.memory_total_gib == 24.0
    assert "float16" in found.precisions
    a_slice = on("3", "NVIDIA H100 80GB HBM3 MIG 1g.10gb")
    assert target.computed_on(nothing, CPU_ONLY, a_slice).profile is None


def test_a_named_card_that_nvml_does_not_show_is_here_once_the_program_is_on_it() -> None:
    """As in a container without NVML; before, it was called absent for good."""
    card = Card(index=0, name="NVIDIA GeForce RTX 3090", total_gib=23.69, compute_capability="8.6")
    named = target.resolve("rtx-3090", CPU_ONLY)
    assert "is not here" in named.note
    found = target.computed_on(named, CPU_ONLY, card)
    assert found == target.computed_on(target.resolve("auto", CPU_ONLY), CPU_ONLY, card)
    assert found.present


@pytest.mark.parametrize(
    ("name", "gpu", "limit"),
    [
        ("auto", H100, 79.6 * 0.91 - 500 / 1024),  # of the card's own total, not of 80 GiB
        ("auto", replace(H100, memory_free_gib=20.0), 0.92 * 20.0),  # others hold the rest
        ("auto", UNKNOWN, 0.92 * 31.7),
        ("rtx-3090", replace(H100, memory_free_gib=30.0), 24.0 * 0.91 - 350 / 1024),  # stands in
        ("auto", None, 7.0),
        ("rtx-3090", None, 7.0),
    ],
)
def test_no_candidate_may_use_more_than_the_card_has_free(name, gpu, limit) -> None:
    """The smaller of the target's usable memory and what the card gives now."""
    found = target.resolve(name, machine(gpu) if gpu else CPU_ONLY)
    assert target.memory_limit_gib(found, 7.0) == pytest.approx(limit)
