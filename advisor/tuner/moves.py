"""Moves of a setting from the best candidate, with all that moves along.

Settings hang together: a batch and its accumulation, in one document by a link or across two. What
a user wants to keep stays, and a setting that goes back takes along what it had moved.
"""

from dataclasses import replace
from functools import partial

from advisor import knobs
from advisor.model import Candidate, Change, JsonScalar, Knob
from advisor.tuner.context import Source
from advisor.tuner.state import KEPT, TunerState, change_of, is_whole


def with_value(
    state: TunerState, knob: Knob, value: JsonScalar
) -> Candidate | knobs.InvalidChange:
    """Best candidate with `knob` at `value` and what is linked to it, or why that cannot be."""
    source = _source_of(state, knob)
    beside = {c.path: c.new for c in state.best.changes if c.document == knob.document}
    move = partial(knobs.move, source.document, source.findings, knob.path)
    moved = move(value, beside)
    if isinstance(moved, knobs.InvalidChange):
        return moved
    elsewhere = _accumulation_elsewhere(state, knob, value)
    if isinstance(elsewhere, knobs.InvalidChange):
        return elsewhere
    moved = (*moved, *elsewhere)
    if kept := next(filter(state.keeps, moved), None):
        return knobs.InvalidChange(reason=f"{kept.path} would move along, and {KEPT}")
    change = change_of(state.best, knob)
    if change is not None:
        # what the present value had moved along, and this one does not, goes back
        present = move(change.new, beside, beyond=True)
        along = () if isinstance(present, knobs.InvalidChange) else present
        stays = {moving.path for moving in moved}
        back = (
            replace(linked, new=linked.old) for linked in along if linked.path not in stays
        )
        moved = (*moved, *back)
    return state.best.with_changes(*moved)


def _accumulation_elsewhere(
    state: TunerState, knob: Knob, value: JsonScalar
) -> tuple[Change, ...] | knobs.InvalidChange:
    """Changes of another document's accumulation that keep the samples of an update.

    Within a document links say what moves along; a batch in `data.yaml` belongs to the only
    accumulation of `train.yaml`, or of the command line. None are needed where a link moves
    one, where it is not known which batch belongs to which accumulation, or where none is used.
    """
    linked = [
        path
        for source in state.context.sources
        for link in source.findings.links
        if link.kind == "product" and source.document.name == knob.document
        for path in link.paths
    ]
    if knob.kind != "batch_size" or knob.scope == "global" or knob.path in linked:
        return ()
    others = [
        other
        for other in state.of_kind("grad_accum")
        if other.document != knob.document and other.editable
    ]
    batches = [batch for batch in state.of_kind("batch_size") if batch.scope != "global"]
    if len(batches) != 1 or len(others) != 1:
        return ()
    old, accumulation, new = knob.value, others[0].value, value
    if not (is_whole(old) and is_whole(accumulation) and is_whole(new)):
        return ()
    if accumulation == 1:
        return ()
    if old * accumulation % new:
        return knobs.InvalidChange(
            reason=f"the product {old} x {accumulation} of {knob.path} and {others[0].path} "
            "cannot be kept"
        )
    source = _source_of(state, others[0])
    moved = old * accumulation // new
    return knobs.move(source.document, source.findings, others[0].path, moved)


def _source_of(state: TunerState, knob: Knob) -> Source:
    """The document that holds the knob."""
    sources = state.context.sources
    return next(source for source in sources if source.document.name == knob.document)
