"""What fills the memory: the parts as they were measured, and none where they were not."""

from __future__ import annotations

import pytest

from advisor.report import footprint, rendering
from tests.report import examples
from tests.report.reading import section

HELD = {"model": 0.1, "gradients": 0.1, "optimizer": 0.2, "activations": 0.5, "workspace": 0.1}


def test_the_parts_add_up_and_the_largest_is_named() -> None:
    calm = examples.improved()
    report = examples.improved(before=calm.before.model_copy(update={"footprint_gib": HELD}))
    parts = footprint.parts(report)
    assert [part.name for part in parts] == list(HELD)
    assert sum(part.share for part in parts) == pytest.approx(1)
    said = footprint.told(report)
    assert "held 1.0 GiB in tensors" in said
    assert "The largest part, 50 %, is activations" in said
    assert "| activations | 512 MiB | 50 % |" in section(rendering.render(report), "Where")


def test_what_was_not_measured_is_not_told() -> None:
    assert footprint.parts(examples.improved()) == []
    assert "fills the memory" not in rendering.render(examples.improved())
