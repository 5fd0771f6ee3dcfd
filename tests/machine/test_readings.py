"""Every reading of one GPU through the real pynvml: its value, or None and the reason."""

import contextlib

import nvml_stub
import pytest
from nvml_stub import GIB, H100

from advisor.machine import gpu
from advisor.machine.readings import GpuReader, GpuSample
from tests.machine.conftest import StubProcess

# Field of GpuSample, key of the stub's script, raw value, value in our unit.
READINGS = [
    ("gpu_util_pct", "util", 42, 42.0),
    ("power_w", "power", 123_456, 123.456),
    ("energy_j", "energy", 5_000_000_500, 5_000_000.5),
    ("sm_clock_mhz", "clock.sm", 1410, 1410.0),
    ("event_reasons", "events", 0x64, 0x64),
]

ERRORS = [(3, "Not Supported"), (4, "Insufficient Permissions"), (999, "Unknown Error")]


def read() -> tuple[GpuSample, dict[str, str]]:
    nvml, (device, *_), _ = gpu.shown_devices({})
    reader = GpuReader(device, nvml)
    return reader.sample(), reader.gaps


def test_each_reading_has_its_unit(nvml) -> None:
    nvml.stub.write(H100, {key: raw for _, key, raw, _ in READINGS})
    sample, gaps = nvml.call(read)
    assert {field: getattr(sample, field) for field, _, _, _ in READINGS} == {
        field: value for field, _, _, value in READINGS
    }
    assert gaps == {}


@pytest.mark.parametrize(("code", "reason"), ERRORS)
def test_a_missing_reading_is_none_with_the_drivers_reason_and_the_rest_goes_on(
    nvml, code, reason
) -> None:
    keys = [*(key for _, key, _, _ in READINGS), "memory", "processes"]
    fields = [*(field for field, _, _, _ in READINGS), "gpu_mem_used_gib", "processes"]
    nvml.stub.write(H100, {f"err.{key}": code for key in keys})
    sample, gaps = nvml.call(read)
    assert {getattr(sample, field) for field in fields} == {None}
    assert sample.working_pids is not None
    assert gaps == dict.fromkeys(fields, f"the driver says: {reason}")


def test_processes_come_with_their_memory_where_it_is_known(nvml) -> None:
    """No entry is None: NVML was asked and listed nobody."""
    sample, _ = nvml.call(read)
    assert sample.processes == {}
    assert sample.gpu_mem_used_gib == 12.0, "without the driver's own"
    nvml.stub.write(H100, processes=f"4711:{3 * GIB},4712:-")
    sample, _ = nvml.call(read)
    assert sample.processes == {4711: 3.0, 4712: None}


def test_who_ran_kernels_is_told_apart_from_who_holds_memory(nvml) -> None:
    """A desktop's few percent are no work; where nothing was sampled, nobody is named."""
    sample, gaps = nvml.call(read)
    assert sample.working_pids == ()
    assert gaps == {}
    nvml.stub.write(H100, working="4712:80,4711:12,4713:2")
    sample, _ = nvml.call(read)
    assert sample.working_pids == (4711, 4712)


def test_an_older_driver_is_read_as_far_as_it_can(tmp_path) -> None:
    """Memory then holds the driver's part, and who is on the card is not known."""
    without = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMemoryInfo_v2")
    with contextlib.closing(StubProcess(nvml_stub.build(tmp_path, without))) as process:
        process.stub.write(H100, events=0x8)
        sample, gaps = process.call(read)
    assert sample.event_reasons == 0x8
    assert sample.gpu_mem_used_gib == pytest.approx(12 + 600 / 1024)
    assert sample.processes is None
    assert list(gaps) == ["processes"]
