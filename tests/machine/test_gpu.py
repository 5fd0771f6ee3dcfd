"""Which GPUs a program is shown, and the sentence where it is shown none."""

import os
import sys
from pathlib import Path
from unittest import mock

import pytest
from nvml_stub import H100, LAPTOP

from advisor.machine import gpu
from tests.support.processes import ran

SECOND = {f"gpu1.{key}": value for key, value in LAPTOP.items()} | {
    "gpu1.power.limit": 115_000,
    "gpu1.err.power.limit": 0,
}
TWO_CARDS = {**H100, **SECOND, "count": 2}

SLICES = {
    "mig": 1,
    "err.util": 3,
    "mig0.0.uuid": "MIG-aaaa",
    "mig0.0.memory.total": 10 * 2**30,
    "mig0.1.uuid": "MIG-bbbb",
    "mig0.1.memory.total": 79 * 2**30,
}


def fresh(root: Path, env: dict[str, str]) -> str:
    """The GPUs of a new process, for what is asked once a process."""
    code = "from advisor.machine import gpu; print(gpu.read_gpus())"
    return ran(sys.executable, "-c", code, env=env, cwd=root, check=True).stdout.strip()


def test_a_card_is_described_in_full(nvml) -> None:
    (card,), note = nvml.call(gpu.read_gpus, {})
    assert note is None
    assert card.index == 0
    assert card.name == H100["name"]
    assert card.uuid == H100["uuid"]
    assert card.memory_total_gib == pytest.approx(79.65, abs=0.01)
    assert card.memory_free_gib == pytest.approx(79.65 - 12 - 600 / 1024, abs=0.01)
    assert card.driver == "560.35.03"
    assert card.compute_capability == "9.0"
    assert card.power_limit_w == 700.0
    assert card.profile == "h100-sxm"
    assert card.mig is False


def test_what_a_card_withholds_is_none(nvml) -> None:
    nvml.stub.write({"count": 1, "err.memory": 4, "err.mig": 999})
    (card,), note = nvml.call(gpu.read_gpus, {})
    assert card.name == "unknown NVIDIA GPU"
    assert note is None
    assert {card.uuid, card.memory_total_gib, card.memory_free_gib, card.driver} == {None}
    assert {card.power_limit_w, card.compute_capability, card.profile, card.mig} == {None}


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        ("0", [0]),
        ("1,0", [1, 0]),
        ("0,7,1", [0]),
        ("", []),
        ("-1", []),
        (str(LAPTOP["uuid"]), [1]),
        ("GPU-2222,0", [1, 0]),
        ("GPU-3", []),
    ],
)
def test_cuda_visible_devices_chooses_as_cuda_does(nvml, visible, indices) -> None:
    """By index or UUID prefix; an invalid entry ends the list."""
    nvml.stub.write(TWO_CARDS)
    cards, note = nvml.call(gpu.read_gpus, {"CUDA_VISIBLE_DEVICES": visible})
    assert [card.index for card in cards] == indices
    hidden = f"CUDA_VISIBLE_DEVICES={visible!r} hides the 2 GPUs of this host."
    assert note == (None if indices else hidden)


def test_a_card_cut_into_slices_appears_as_its_slices(nvml) -> None:
    """A slice has the memory it was given and, even a large one, is no card of the profile."""
    nvml.stub.write(H100, SLICES)
    cards, _ = nvml.call(gpu.read_gpus, {})
    assert [(c.uuid, c.index, c.mig, c.profile) for c in cards] == [
        ("MIG-aaaa", 0, True, None),
        ("MIG-bbbb", 0, True, None),
    ]
    (chosen,), _ = nvml.call(gpu.read_gpus, {"CUDA_VISIBLE_DEVICES": "MIG-bbbb"})
    assert chosen.uuid == "MIG-bbbb"
    assert chosen.memory_total_gib == 79.0
    nvml.stub.write(H100, mig=1)
    (whole,), _ = nvml.call(gpu.read_gpus, {})
    assert whole.uuid == H100["uuid"]
    assert whole.mig is True


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ({"count": 0}, "lists no GPU"),
        ({"count": 1, "err.handle": 15}, "GPU 0 could not be opened"),
        ({"err.count": 999}, "could not list the GPUs"),
    ],
)
def test_no_card_has_a_reason(nvml, script, words) -> None:
    nvml.stub.write(script)
    cards, note = nvml.call(gpu.read_gpus, {})
    assert cards == ()
    assert words in note


def test_a_driver_that_does_not_start_or_is_not_there_has_its_reason(root, stub, tmp_path) -> None:
    """The library is looked for and not found; nothing raises."""
    stub.write(H100, {"err.init": 9})
    assert "Driver Not Loaded. nvidia-smi says why" in fresh(root, stub.env())
    broken = tmp_path / "libnvidia-ml.so.1"
    broken.write_bytes(b"not a library")  # hides a real driver, where the test host has one
    said = fresh(root, {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})
    assert "No NVIDIA driver is installed on this host" in said


def load_uvm(root: str) -> int:
    """How often CUDA is started."""
    with mock.patch.object(gpu.subprocess, "run") as started:
        gpu.load_uvm(Path(root))
    return started.call_count


def test_cuda_is_started_where_its_device_file_is_missing(nvml, tmp_path) -> None:
    """The driver's set-uid helper makes it, which it cannot do in a user namespace.

    On a host without a GPU nothing is missing.
    """
    place = tmp_path / gpu.UVM
    place.parent.mkdir()
    assert nvml.call(load_uvm, str(tmp_path)) == 1
    assert nvml.call(load_uvm, str(tmp_path)) == 0, "it made none, and will not the next time"
    place.touch()
    assert nvml.call(load_uvm, str(tmp_path)) == 0
    nvml.stub.write(H100, count=0)
    assert nvml.call(load_uvm, str(tmp_path / "empty")) == 0


def test_wsl_has_no_device_file_and_needs_none(nvml, tmp_path) -> None:
    """There CUDA reaches the card through /dev/dxg: nothing is missing, nothing is started."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "dxg").touch()
    assert gpu.uvm_loaded(tmp_path)
    assert nvml.call(load_uvm, str(tmp_path)) == 0
