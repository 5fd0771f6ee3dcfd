"""What `--target` means on a machine: the card itself, a larger one standing in, or neither."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.machine import profiles, target
from advisor.model import Card, Gpu, Machine

CPU_ONLY = Machine(
    cpu_model="Test CPU",
    cpus=2,
    ram_gib=24.0,
    ram_limit_gib=8.0,
    os="Linux",
    python="3.11.7",
    gpu_note="No NVIDIA driver is installed on this host.",
)


def card(name: str, total_gib: float, capability: str, index: int = 0) -> Gpu:
    found = profiles.match(name, total_gib)
    return Gpu(
        index=index,
        name=name,
        uuid=f"GPU-{index}",
        memory_total_gib=total_gib,
        memory_free_gib=total_gib - 0.3,
        driver="560",
        power_limit_w=None,
        compute_capability=capability,
        profile=found.name if found else None,
    )


H100 = card("NVIDIA H100 80GB HBM3", 79.6, "9.0")
RTX_3090 = card("NVIDIA GeForce RTX 3090", 24.0, "8.6", index=1)
V100 = card("Tesla V100-SXM2-32GB", 32.0, "7.0")
UNKNOWN = card("NVIDIA RTX 5000 Ada Generation", 32.0, "8.9")


def machine(*gpus: Gpu) -> Machine:
    return replace(CPU_ONLY, gpus=gpus, gpu_note=None)


def test_auto_without_a_gpu_is_this_cpu_and_says_so() -> None:
    found = target.resolve("auto", CPU_ONLY)
    assert (found.name, found.present, found.stood_in, found.gpu) == ("cpu", True, False, None)
    assert found.precisions == ("float32", "bfloat16")
    assert found.note == ("No NVIDIA driver is installed on this host. Everything is for this CPU.")
    assert found.figures == "Test CPU: 2 CPUs, 8.0 GiB"


def test_auto_is_the_first_gpu() -> None:
    found = target.resolve("auto", machine(H100, RTX_3090))
    assert (found.name, found.gpu, found.present) == ("h100-sxm", H100, True)
    assert (found.memory_cap_gib, found.note, found.environment) == (None, "", ())
    assert "989" in found.figures


def test_a_card_without_a_profile_is_used_with_what_it_says_of_itself() -> None:
    found = target.resolve("auto", machine(UNKNOWN))
    assert (found.name, found.profile, found.figures) == (UNKNOWN.name, None, "")
    assert found.precisions == ("float32", "float16", "bfloat16")
    assert "No profile of NVIDIA RTX 5000 Ada Generation is known" in found.note


def test_the_named_card_is_taken_where_it_is_here_and_others_are_hidden() -> None:
    """Even where a larger card comes first."""
    found = target.resolve("rtx-3090", machine(H100, RTX_3090))
    assert (found.gpu, found.present, found.stood_in) == (RTX_3090, True, False)
    assert found.environment == (("CUDA_VISIBLE_DEVICES", "GPU-1"),)


def test_a_larger_card_stands_in_with_the_targets_memory() -> None:
    found = target.resolve("RTX 3090", machine(H100))
    assert (found.name, found.gpu, found.present, found.stood_in) == (
        "rtx-3090",
        H100,
        False,
        True,
    )
    assert found.memory_cap_gib == profiles.usable_gib(profiles.by_name("rtx-3090"))
    assert "memory capped to 21.5 GiB" in found.note
    assert "speed was not measured" in found.note
    assert target.resolve("t4", machine(H100)).precisions == ("float32", "float16")


@pytest.mark.parametrize(
    ("name", "here", "why"),
    [
        ("h200-sxm", H100, "too small"),
        ("rtx-3090", V100, "no bfloat16"),
        ("rtx-3090", replace(H100, memory_free_gib=10.0), "others hold its memory"),
        ("rtx-3090", replace(H100, memory_free_gib=None, memory_total_gib=None), "unknown"),
    ],
)
def test_a_card_that_cannot_give_what_the_target_has_does_not_stand_in(
    name: str, here: Gpu, why: str
) -> None:
    found = target.resolve(name, machine(here))
    assert (found.present, found.stood_in, found.memory_cap_gib) == (False, False, None), why
    assert "lacks the free memory or the precisions to stand in" in found.note
    assert f"All figures are those of {here.name}." in found.note


def test_a_cpu_never_stands_in() -> None:
    found = target.resolve("h100-sxm", CPU_ONLY)
    assert (found.gpu, found.present, found.stood_in) == (None, False, False)
    assert found.precisions == ("float32", "bfloat16")
    assert "its speed was not measured. All figures are those of this CPU (Test CPU)." in found.note


def on(uuid: str | None, name: str = "NVIDIA GeForce RTX 3090") -> Card:
    return Card(
        index=0, name=name, uuid=uuid, total_gib=24.0, available_gib=22.0, compute_capability="8.6"
    )


def test_the_card_that_the_program_is_on_is_the_target() -> None:
    """CUDA may put another card first than NVML does; torch spells the UUID without its prefix."""
    here = machine(H100, RTX_3090)
    aimed = target.resolve("auto", here)
    found = target.computed_on(aimed, here, on("1"))
    assert (found.name, found.gpu) == ("rtx-3090", RTX_3090)
    assert target.computed_on(aimed, here, on("0")) == aimed
    assert target.computed_on(aimed, here, on(None)) == aimed, "an older torch does not say"


def test_a_card_that_nvml_does_not_show_is_still_a_card() -> None:
    """In a container without NVML its memory is that of `mem_get_info`, never the host's."""
    found = target.computed_on(target.resolve("auto", CPU_ONLY), CPU_ONLY, on("7"))
    assert found.gpu is not None
    assert (found.name, found.gpu.memory_free_gib) == ("rtx-3090", 22.0)
    assert found.gpu.memory_total_gib == 24.0
    assert "float16" in found.precisions
    assert found.note == ""


def test_a_mig_slice_has_no_profile_of_the_whole_card() -> None:
    """Its memory is its own, its speed is not the card's."""
    slice_ = on("3", "NVIDIA H100 80GB HBM3 MIG 1g.10gb")
    found = target.computed_on(target.resolve("auto", CPU_ONLY), CPU_ONLY, slice_)
    assert (found.profile, found.name) == (None, "NVIDIA H100 80GB HBM3 MIG 1g.10gb")


def test_a_card_that_was_asked_for_by_name_stays() -> None:
    """Where another stands in for it, its memory is the limit."""
    here = machine(H100)
    aimed = target.resolve("rtx-3090", here)
    assert target.computed_on(aimed, here, on("9", "other")) == aimed


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
def test_no_candidate_may_use_more_than_the_card_has_free(
    name: str, gpu: Gpu | None, limit: float
) -> None:
    """The smaller of the target's usable memory and what the card gives now."""
    found = target.resolve(name, machine(gpu) if gpu else CPU_ONLY)
    assert target.memory_limit_gib(found, 7.0) == pytest.approx(limit)
