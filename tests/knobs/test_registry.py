"""A DataLoader argument is one row of the registry: every reader knows it from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from advisor.knobs.default_arguments import with_absent
from advisor.knobs.registry import LOADER_ARGUMENTS, KnobSpec
from advisor.model import Effects
from advisor.patches.patches import ARGUMENTS, NEEDS_WORKERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.config import Document
    from advisor.knobs import Findings


@pytest.fixture(params=LOADER_ARGUMENTS, ids=lambda each: each.kind)
def argument(request: pytest.FixtureRequest) -> KnobSpec:
    found: KnobSpec = request.param
    return found


def test_a_config_key_of_its_name_is_the_knob(
    argument: KnobSpec, find: Callable[..., Findings]
) -> None:
    value = "true" if isinstance(argument.default, bool) else "4"
    findings = find(f"batch_size: 8\n{argument.kind}: {value}\nn_jobs: 2\n")
    knob = findings.knob(argument.kind)
    assert knob is not None
    assert (knob.kind, knob.knob_class) == (argument.kind, argument.class_in(knob.phase))


def test_it_needs_workers_where_the_spec_says_so(
    argument: KnobSpec, find: Callable[..., Findings]
) -> None:
    value = "true" if isinstance(argument.default, bool) else "4"
    key = {} if argument.kind == "num_workers" else {argument.kind: value}
    text = "".join(f"{name}: {text}\n" for name, text in {"num_workers": "2", **key}.items())
    linked = {path for link in find(text).links if link.kind == "needs-workers"
              for path in link.paths}  # fmt: skip
    assert (argument.kind in linked) == ("workers" in argument.needs)


def test_a_mapping_of_loader_arguments_may_get_it(
    argument: KnobSpec, document: Callable[..., Document]
) -> None:
    found = with_absent(document("loader: {batch_size: 8, shuffle: true}\n")).absent
    assert {each.key: each.default for each in found}[argument.kind] == argument.default


def test_its_observed_value_is_read_from_the_effects(argument: KnobSpec) -> None:
    assert argument.observed(Effects()) is None
    field = argument.effect or ""
    if hasattr(Effects(), field):
        assert argument.observed(Effects(**{field: 4})) == 4
    else:
        assert argument.observed(Effects(loader_arguments=((field, False),))) is False


def test_the_patch_of_a_call_knows_it(argument: KnobSpec) -> None:
    assert ARGUMENTS.get(argument.kind) == argument.trainer_argument
    assert (argument.kind in NEEDS_WORKERS) == ("workers" in argument.needs)
