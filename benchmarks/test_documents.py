"""What reading and editing a large config costs.

    python -m pytest benchmarks/test_documents.py --benchmark-enable

The large file has the size and shape of the largest real config seen: a few hundred settings
and a long list of data paths. The dense one, all settings and short lines, is the worst case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from advisor.config import parse

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

SIZE = 164_000


def _large() -> bytes:
    settings = "".join(
        f"section_{n}:\n  batch_size: {n + 1}  # per GPU\n  lr: 1.0e-4\n  amp: true\n"
        for n in range(100)
    )
    line = "    - s3://bucket/preprocessed/mix/v1_7-dd_ngram_dp_030-qc/all/part-{:06d}-00000.npy\n"
    count = (SIZE - len(settings)) // len(line.format(0))
    paths = "".join(line.format(n) for n in range(count))
    return f"{settings}data:\n  num_workers: 16\n  paths:\n{paths}".encode()


def _dense() -> bytes:
    section = (
        "section_{0}:\n  batch_size: 8  # per GPU\n  lr: 0.0001\n  name: 'x{0}'\n"
        "  sizes: [1, 2, 3]\n  nested:\n    amp: True\n    path: data/part-{0:05d}.npy\n"
    )
    return "".join(section.format(n) for n in range(SIZE // len(section.format(1000)))).encode()


DOCUMENTS = {"large": _large(), "dense": _dense()}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_read_and_edit_164_kb_of_yaml(benchmark: BenchmarkFixture, name: str) -> None:
    """Parse, look at every scalar, set one value, verify."""
    raw = DOCUMENTS[name]

    def read_and_edit() -> bytes:
        document = parse(raw, "yaml", name)
        assert all(document.scalars.values())
        return document.with_values({"section_40.batch_size": 4096})

    assert benchmark(read_and_edit).count(b"4096") == 1


@pytest.mark.parametrize("name", DOCUMENTS)
def test_read_164_kb_of_yaml(benchmark: BenchmarkFixture, name: str) -> None:
    """Parse and look at every scalar."""
    raw = DOCUMENTS[name]
    assert benchmark(lambda: len(list(parse(raw, "yaml", name).scalars.values()))) > 0
