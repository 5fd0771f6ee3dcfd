"""Trace of a step: floating-point operations, bytes, and storages."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.model import MeasurePlan
from advisor.probe import cuda_stand_in
from advisor.probe.op_trace import ATTENTION, CONVOLUTION, GROUPED, MATRIX, OpTrace
from advisor.probe.session import Session, Unseen
from tests.probe.program import python

torch = pytest.importorskip("torch")

FLOAT = 4
"""Bytes of a float32."""


@pytest.fixture
def session(tmp_path: Path) -> Session:
    found = Session({"records": str(tmp_path)})
    found.torch = torch
    return found


def traced(session: Session, work: Callable[[], object]) -> dict[str, Any]:
    trace = OpTrace(session)
    trace.begin()
    with torch.no_grad():
        work()
    return trace.end()["trace"]


@pytest.mark.parametrize(
    ("layer", "shape", "kind", "flops"),
    [
        (torch.nn.Linear(3, 5), (2, 3), MATRIX, 2 * 2 * 3 * 5),
        (torch.nn.Conv2d(4, 6, 3), (1, 4, 8, 8), CONVOLUTION, 2 * 6 * 36 * 4 * 9),
        (torch.nn.Conv2d(4, 4, 3, groups=4), (1, 4, 8, 8), GROUPED, 2 * 4 * 36 * 9),
    ],
)
def test_a_layer_has_the_operations_of_its_formula(session, layer, shape, kind, flops) -> None:
    x = torch.zeros(shape)
    found = traced(session, lambda: layer(x))
    assert [(op[0], op[2]) for op in found["ops"] if op[2]] == [(kind, flops)]
    held = [tensor.numel() * FLOAT for tensor in (x, *layer.parameters())]
    assert sorted(found["held"]) == sorted(held)


def test_attention_has_two_products_of_queries_and_keys(session) -> None:
    q, k = torch.zeros(1, 2, 6, 8), torch.zeros(1, 2, 10, 8)
    attend = torch.nn.functional.scaled_dot_product_attention
    found = traced(session, lambda: attend(q, k, k))
    assert [op[2] for op in found["ops"] if op[0] == ATTENTION] == [2 * 2 * (2 * 6 * 10 * 8)]


def test_a_recurrent_layer_multiplies_each_word_with_its_weights(session: Session) -> None:
    layer = torch.nn.LSTM(3, 5, 2, batch_first=True)
    found = traced(session, lambda: layer(torch.zeros(2, 7, 3)))
    weights = sum(parameter.numel() for parameter in layer.parameters() if parameter.dim() == 2)
    assert sum(op[2] for op in found["ops"]) == 2 * 2 * 7 * weights


def test_halves_that_a_cpu_computes_in_32_bits_are_traced_as_16(session: Session) -> None:
    layer, words = torch.nn.Conv2d(4, 6, 3).bfloat16(), torch.nn.LSTM(7, 5).bfloat16()
    x, factor = torch.rand(2, 4, 9, 9).bfloat16(), torch.rand(7, 5).bfloat16()

    def work() -> None:
        with torch.enable_grad():
            layer(x).matmul(factor).square().mean().backward()
        layer.zero_grad()

    plain = traced(session, work)
    cuda_stand_in.halves_in_float32(torch)
    try:
        assert traced(session, work) == plain
        wide = x[0, 0, :, :7].float() @ factor.float()
        assert torch.equal(x[0, 0, :, :7] @ factor, wide.bfloat16())
        assert "bfloat16" in {op[1] for op in traced(session, lambda: words(x[0, :, :, :7]))["ops"]}
    finally:
        cuda_stand_in.LIBRARIES.pop()._destroy()


def test_views_cost_nothing_and_storages_are_freed(session) -> None:
    x = torch.zeros(4, 4)

    def work() -> None:
        x.t().reshape(16)[:2]
        (x.view(16) + 1).sum()

    found = traced(session, work)
    assert found["held"] == [64]
    names = [op[4] for op in found["ops"]]
    assert names[-2:] == ["add", "sum"]
    assert "view" not in names
    made = [event for event in found["events"] if event >= 0]
    freed = sorted(-1 - event for event in found["events"] if event < 0)
    assert made[-2:] == [64, FLOAT]
    assert freed == list(range(len(made)))


def test_what_the_loader_does_is_no_work_of_the_step(session) -> None:
    session.fetching = True
    found = traced(session, lambda: torch.zeros(4) + 1)
    assert found["ops"] == found["events"] == []


def test_what_the_probe_computes_is_no_work_of_the_step(session) -> None:
    """Samples of gradients stood in a step that was traced, in one run and not in the next."""

    def work() -> None:
        with Unseen(session):
            own = torch.zeros(4) + 1
            with Unseen(session):
                assert own.norm() == 2
            own.clone()
        torch.ones(2)

    assert [op[4] for op in traced(session, work)["ops"]] == ["ones"]


def test_a_card_computes_convolutions_in_tf32_unless_the_program_says_no(session) -> None:
    layers, x = torch.nn.Conv2d(4, 6, 3), torch.zeros(1, 4, 8, 8)
    assert {op[1] for op in traced(session, lambda: layers(x))["ops"]} == {"tf32"}
    torch.backends.cudnn.allow_tf32 = False
    try:
        assert {op[1] for op in traced(session, lambda: layers(x))["ops"]} == {"float32"}
    finally:
        torch.backends.cudnn.allow_tf32 = True


def test_half_of_a_causal_attention_is_skipped_and_its_factors_tell_its_dtype(
    session: Session,
) -> None:
    """The backward reads a float32 beside its factors."""
    q = torch.zeros(1, 2, 8, 8, dtype=torch.bfloat16, requires_grad=True)
    attend = torch.nn.functional.scaled_dot_product_attention

    def operations(*, causal: bool) -> list[float]:
        trace = OpTrace(session)
        trace.begin()
        attend(q, q, q, is_causal=causal).sum().backward()
        found = trace.end()["trace"]
        ops = [op for op in found["ops"] if op[0] == ATTENTION]
        assert {op[1] for op in ops} == {"bfloat16"}
        return [op[2] for op in ops]

    assert operations(causal=True) == [operation / 2 for operation in operations(causal=False)]


def test_inference_mode_hides_no_operation(session: Session) -> None:
    """A step may begin within it, and go on after it."""
    layer, x = torch.nn.Linear(3, 5), torch.zeros(2, 3)
    trace = OpTrace(session)
    with torch.inference_mode():
        trace.begin()
        layer(x)
    with torch.inference_mode():
        layer(x)
    ops = trace.end()["trace"]["ops"]
    assert [op[2] for op in ops if op[0] == MATRIX] == 2 * [2 * 2 * 3 * 5]


SEVERAL = """\
import torch
first = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(20)])
second = torch.nn.Linear(256, 256, bias=False)
for _ in range(4000):
    with torch.no_grad():
        out = first(torch.ones(2, 256))
        for each in out:
            second(each[None])
"""


def test_a_step_is_traced_with_all_its_networks(tmp_path: Path) -> None:
    """The batch of 2 goes through the first network, and each item through the second."""
    (tmp_path / "several.py").write_text(SEVERAL)
    plan = MeasurePlan(measure_s=0.3, min_steps=10, trace=True)
    trace = python(tmp_path, str(tmp_path / "several.py"), plan=plan).measured.trace
    names = [op[-1] for op in trace["ops"]] if trace else []  # type: ignore[attr-defined]
    assert names.count("addmm") == 20
    assert names.count("mm") == 2
