"""A DataLoader argument is one row of the registry: every reader knows it from there."""

from __future__ import annotations

import pytest

from advisor.knobs.registry import LOADER_ARGUMENTS, KnobSpec
from advisor.model import Effects
from advisor.patches.patches import ARGUMENTS, NEEDS_WORKERS
from tests.knobs.conftest import find

every_argument = pytest.mark.parametrize(
    "argument", LOADER_ARGUMENTS, ids=[each.kind for each in LOADER_ARGUMENTS]
)


@every_argument
def test_a_config_key_of_its_name_is_the_knob_with_its_links(argument: KnobSpec) -> None:
    value = "true" if isinstance(argument.default, bool) else "4"
    workers = "" if argument.kind == "num_workers" else "num_workers: 2\n"
    found = find(f"batch_size: 8\n{argument.kind}: {value}\n{workers}")
    knob = found.knob(argument.kind)
    assert knob is not None
    assert (knob.kind, knob.knob_class) == (argument.kind, argument.class_in(knob.phase))
    needing = {link.paths[0] for link in found.links if link.kind == "needs-workers"}
    assert (argument.kind in needing) == ("workers" in argument.needs)


@every_argument
def test_its_observed_value_is_read_from_the_effects(argument: KnobSpec) -> None:
    assert argument.observed(Effects()) is None
    field = argument.effect or ""
    if hasattr(Effects(), field):
        assert argument.observed(Effects(**{field: 4})) == 4
    else:
        assert argument.observed(Effects(loader_arguments=((field, False),))) is False


@every_argument
def test_the_patch_of_a_call_knows_it(argument: KnobSpec) -> None:
    assert ARGUMENTS.get(argument.kind) == argument.trainer_argument
    assert (argument.kind in NEEDS_WORKERS) == ("workers" in argument.needs)
