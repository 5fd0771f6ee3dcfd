"""A process whose NVML is the stub: the rest of the test session must never see its GPUs."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import ParamSpec, TypeVar

import nvml_stub
import pytest

P = ParamSpec("P")
R = TypeVar("R")


class StubProcess:
    """Runs functions in one fresh process that loads the stub in place of a driver."""

    def __init__(self, stub: nvml_stub.NvmlStub) -> None:
        self.stub = stub
        self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
            for name, value in stub.env().items():
                patch.setenv(name, value)
            self.pid = self.call(os.getpid)

    def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return self._pool.submit(function, *args, **kwargs).result(timeout=60)

    def close(self) -> None:
        self._pool.shutdown()


@pytest.fixture(scope="session")
def stub(tmp_path_factory: pytest.TempPathFactory) -> nvml_stub.NvmlStub:
    """The stub with all its symbols."""
    return nvml_stub.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def shared_process(stub: nvml_stub.NvmlStub) -> Iterator[StubProcess]:
    process = StubProcess(stub)
    yield process
    process.close()


@pytest.fixture
def nvml(shared_process: StubProcess) -> StubProcess:
    """A process on the full stub, one busy H100 scripted."""
    shared_process.stub.write(nvml_stub.H100)
    return shared_process
