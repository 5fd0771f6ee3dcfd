"""A scripted NVIDIA driver library, so that the real pynvml can be driven without a GPU.

    stub = nvml_stub.build(tmp_path)               # skips the test where there is no gcc
    stub.write(nvml_stub.H100, util=97, events=0x20)
    subprocess.run([...], env=stub.env())          # that process and its children see one H100
    stub.write(nvml_stub.H100, util=0)             # from the next NVML call on

Keys of a script (all optional; what is left out is NotSupported): count, driver, name, uuid,
capability, mig, memory.total / .used / .reserved (bytes), util (%), power / power.limit (mW),
energy (mJ), clock.sm (MHz), events (bits), processes ("pid:bytes,pid:-"), working ("pid:percent"),
err.KEY (an NVML error code for that reading; also err.init, err.handle, err.memory).
`gpu1.KEY` is for GPU 1 alone, `mig0.2.KEY` for slice 2 of GPU 0, which exists once it has a uuid.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "machine" / "nvml_stub.c"
LIBRARIES = "GPU_ADVISOR_TESTS_NVML"
"""Environment variable: the folder of the libraries that all tests share."""

GIB = 2**30

H100: dict[str, object] = {
    "count": 1,
    "driver": "560.35.03",
    "name": "NVIDIA H100 80GB HBM3",
    "uuid": "GPU-11111111-0000-0000-0000-000000000001",
    "capability": "9.0",
    "mig": 0,
    "memory.total": 85_520_809_984,
    "memory.used": 12 * GIB,
    "memory.reserved": 600 * 2**20,
    "util": 97,
    "power": 650_000,
    "power.limit": 700_000,
    "energy": 1_000_000,
    "clock.sm": 1980,
    "events": 0,
}
"""A busy card that withholds nothing."""

LAPTOP: dict[str, object] = {
    "count": 1,
    "driver": "560.35.03",
    "name": "NVIDIA GeForce RTX 4060 Laptop GPU",
    "uuid": "GPU-22222222-0000-0000-0000-000000000002",
    "capability": "8.9",
    "memory.total": 8_585_740_288,
    "memory.used": 1 * GIB,
    "util": 88,
    "power": 79_000,
    "clock.sm": 2100,
    "events": 4,
    "err.energy": 3,
    "err.power.limit": 3,
}
"""A power-capped laptop card: no MIG, no energy counter, no power limit."""


@dataclass(frozen=True)
class NvmlStub:
    """A script in a folder of its own, and the folder of the library that reads it."""

    folder: Path
    library: Path | None = None

    @property
    def script(self) -> Path:
        return self.folder / "script.txt"

    def env(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """An environment whose processes load the stub as NVML, and see all its GPUs."""
        env = dict(os.environ if base is None else base)
        env.pop("CUDA_VISIBLE_DEVICES", None)
        path = [str(self.library), *filter(None, [env.get("LD_LIBRARY_PATH")])]
        return {
            **env,
            "LD_LIBRARY_PATH": os.pathsep.join(path),
            "NVML_STUB_SCRIPT": str(self.script),
        }

    def write(self, *tables: Mapping[str, object], **more: object) -> None:
        """Script the readings from now on; later tables win. No process sees a half of it."""
        merged: dict[str, object] = {}
        for table in (*tables, more):
            merged |= table
        draft = self.folder / "script.draft"
        draft.write_text("".join(f"{key} {value}\n" for key, value in merged.items()))
        draft.replace(self.script)


@contextlib.contextmanager
def metered(stub: NvmlStub, table: Mapping[str, object]) -> Iterator[dict[str, str]]:
    """The variable by which simulated cards set utilisation, memory and power of the script.

    They are found by their UUIDs. A card that no process tells of is idle.
    """
    cards = {str(value): key.removesuffix("uuid") for key, value in table.items() if "uuid" in key}
    ended = threading.Event()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.bind(("127.0.0.1", 0))
        line.settimeout(0.5)

        def follow() -> None:
            while not ended.is_set():
                try:
                    told = json.loads(line.recv(65536))
                except TimeoutError:
                    told = {}
                use: dict[str, object] = {}
                for uuid, card in cards.items():
                    share, used = told.get(uuid, (0.0, 0.0))
                    use[f"{card}util"] = round(100 * share)
                    use[f"{card}memory.used"] = round(GIB + used)
                    limit_mw = float(str(table.get(f"{card}power.limit", 700_000)))
                    use[f"{card}power"] = round(limit_mw * (0.1 + 0.75 * share))
                stub.write(table, use)

        thread = threading.Thread(target=follow)
        thread.start()
        try:
            yield {"SIMULATED_GPU_METER": str(line.getsockname()[1])}
        finally:
            ended.set()
            thread.join()


def build(folder: Path, without: Iterable[str] = ()) -> NvmlStub:
    """The stub without the symbols in `without`, whose script lies in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    shared = Path(os.environ.get(LIBRARIES, folder))
    stub = NvmlStub(folder, compiled(frozenset(without), shared))
    stub.write(H100)
    return stub


def compiled(without: frozenset[str], shared: Path) -> Path:
    """The folder of the library, in `shared`, where it is compiled once."""
    folder = shared / "-".join(("library-without", *sorted(without)))
    library = folder / "libnvidia-ml.so.1"
    if library.exists():
        return folder
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("no gcc here to build the stub NVML library with")
    folder.mkdir()
    subprocess.run(
        [gcc, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-Wl,-soname,libnvidia-ml.so.1"]
        + [f"-DWITHOUT_{symbol}" for symbol in without]
        + ["-o", str(library), str(SOURCE)],
        check=True,
    )
    return folder
