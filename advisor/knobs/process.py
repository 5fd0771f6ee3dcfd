"""The running program as a document, for values that no config or option holds.

Most programs write the arguments of their DataLoader into the code. The probe tells them
with the line that builds it, so they are leaves as those of a config are: searched, proven
and reported by the same code. A trial overrides them inside the process; the user's code is
never edited, and what is proven becomes a patch.
"""

import json
from collections.abc import Container

from advisor import config
from advisor.knobs.constraints import find_links
from advisor.knobs.registry import LOADER_ARGUMENTS, REGISTRY
from advisor.knobs.tree import Findings, leaves
from advisor.model import PROCESS, Effects, JsonScalar, Knob, Phase


def find(
    effects: Effects, phase: Phase, held: Container[str] = ()
) -> tuple[config.Document, Findings] | None:
    """Document and knobs of the measured DataLoader; None where none was iterated.

    Kinds in `held` are left out: a config or an option sets them, and is where they move.
    """
    if effects.workers is None:
        return None
    values: dict[str, JsonScalar] = {
        name: value for name, value in _arguments(effects).items() if name not in held
    }
    name = effects.loader_site or PROCESS
    document = config.parse(json.dumps(values).encode(), "process", name)
    knobs = tuple(
        Knob(
            document=name,
            path=kind,
            kind=kind,
            phase=phase,
            knob_class=REGISTRY[kind].class_in(phase),
            value=value,
            unit=REGISTRY[kind].unit,
            why=f"argument of the DataLoader built at {name}",
        )
        for kind, value in values.items()
    )
    findings = Findings(
        document=name,
        knobs=knobs,
        links=find_links(name, leaves(document.scalars), knobs),
        traps=(),
        outputs=(),
    )
    return document, findings


def _arguments(effects: Effects) -> dict[str, JsonScalar]:
    """Arguments in force, but those that the program's torch does not know."""
    found: dict[str, JsonScalar] = {}
    if effects.batch_asked is not None:  # else the program makes its batches itself
        found["batch_size"] = effects.batch_asked
    for each in LOADER_ARGUMENTS:
        value = each.observed(effects)
        if value is not None or each.none_is_a_value:
            found[each.kind] = value
    return found
