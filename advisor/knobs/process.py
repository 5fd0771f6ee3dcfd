"""The running program as documents, for values that no config or option holds.

Most programs write the arguments of their DataLoader into the code, and leave torch's own switches
as they are. The probe tells both, the first with the line that builds the loader. So they are
leaves as those of a config are: searched, proven and reported by the same code. A trial overrides
them inside the process; the user's code is never edited, and what is proven becomes a patch.
"""

import json
from collections.abc import Container, Mapping, Sequence

from advisor import config
from advisor.knobs.constraints import find_links
from advisor.knobs.registry import LOADER_ARGUMENTS, REGISTRY, KnobSpec
from advisor.knobs.tree import Findings, leaves
from advisor.model import PROCESS, Effects, JsonScalar, Knob, Phase

DocumentOfPlace = tuple[config.Document, Findings]
"""Settings of the running program at one place of its code, as a document with its knobs."""


def find(
    effects: Effects,
    phase: Phase,
    switches: Sequence[KnobSpec],
    configured: Container[str] = (),
) -> list[DocumentOfPlace]:
    """Documents of the measured DataLoader's arguments and of `switches`, named by their place.

    Kinds in `configured` are left out: a config or an option sets them, and is where they move.
    """
    values_by_place: dict[str, dict[str, tuple[str, JsonScalar]]] = {}
    if effects.workers is not None:  # else no loader was iterated
        arguments = _arguments(effects).items()
        values = {
            kind: (kind, value) for kind, value in arguments if kind not in configured
        }
        values_by_place[effects.loader_site or PROCESS] = values
    for spec in switches:
        able, value = spec.switched_off(effects)
        if spec.switch is not None and able and spec.kind not in configured:
            values_by_place.setdefault(PROCESS, {})[spec.switch.override] = spec.kind, value
    return [_document(name, phase, values) for name, values in values_by_place.items()]


def _document(
    name: str, phase: Phase, values: Mapping[str, tuple[str, JsonScalar]]
) -> DocumentOfPlace:
    """Document of values by path, each with its kind."""
    raw = json.dumps({path: value for path, (_, value) in values.items()})
    document = config.parse(raw.encode(), "process", name)
    knobs = tuple(
        Knob(
            document=name,
            path=path,
            kind=kind,
            phase=phase,
            knob_class=REGISTRY[kind].class_in(phase),
            value=value,
            unit=REGISTRY[kind].unit,
            why=f"seen at {name}",
        )
        for path, (kind, value) in values.items()
    )
    links = find_links(name, leaves(document.scalars), knobs)
    return document, Findings(document=name, knobs=knobs, links=links, traps=(), outputs=())


def _arguments(effects: Effects) -> dict[str, JsonScalar]:
    """Arguments in force, but those that the program's torch does not know."""
    arguments: dict[str, JsonScalar] = {}
    if effects.batch_asked is not None:  # else the program makes its batches itself
        arguments["batch_size"] = effects.batch_asked
    for spec in LOADER_ARGUMENTS:
        value = spec.observed(effects)
        if value is not None or spec.none_is_a_value:
            arguments[spec.kind] = value
    return arguments
