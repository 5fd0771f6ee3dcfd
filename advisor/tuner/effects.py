"""Effects of settings: asked against observed values, and on a training."""

from advisor import knobs, numbers
from advisor.knobs.registry import REGISTRY, loader_arguments
from advisor.knobs.tree import number_of
from advisor.model import Candidate, Change, EffectVerdict, Knob, Run
from advisor.tuner import policy, run_length
from advisor.tuner.moves import with_value
from advisor.tuner.same_work.facts import update_samples
from advisor.tuner.state import TunerState, change_of

MAY_TRAIN = (
    "No optimizer of torch's was seen to step, so it may train. Where it does not, say "
    '`phase = "test"` in gpu-advisor.toml. '
)
LOADER_KINDS = {"batch_size", *loader_arguments()}


def verdict(change: Change, before: Run, after: Run) -> EffectVerdict:
    """Effect of `change` that `after` shows, beside `before`.

    What is seen at the new value took effect, at the old one is ignored. Seen at neither it is
    `other`, and `unknown` where nothing shows it: that is held for no proof.
    """
    spec, seen, old = REGISTRY.get(change.kind), after.effects, before.effects
    if not_applied(change, after):
        return "ignored"
    if change.in_code and spec is not None and spec.switch is not None:
        return "took effect"  # the probe put it in place itself
    if spec is not None and spec.effect:
        value = spec.observed(seen)
        if value is None:
            return "unknown"
        if value == change.new:
            return "took effect"
        if change.kind == "batch_size" and seen.batch_asked == change.new:
            return "took effect"  # the data did not fill it
        return "ignored" if value == spec.observed(old) else "other"
    if change.kind == "precision" and (seen.dtype or seen.autocast_dtype):
        same = (seen.dtype, seen.autocast_dtype) == (old.dtype, old.autocast_dtype)
        return "ignored" if same else "took effect"
    return "unknown"


def not_applied(change: Change, run: Run) -> str:
    """Why the probe did not put a value of the code in place; empty if it did, or had not to."""
    if not change.in_code:
        return ""
    outcomes = (override for override in run.overrides if override.knob == change.path)
    outcome = next(outcomes, None)
    if outcome is None:
        return "the run does not tell if it was"
    return "" if outcome.applied else outcome.why or "it had no effect"


def is_ignored(knob: Knob, candidate: Candidate, before: Run, after: Run) -> bool:
    """True if the candidate moved `knob`, and the program was seen at its old value."""
    change = change_of(candidate, knob)
    return change is not None and verdict(change, before, after) == "ignored"


def set_ignored(
    state: TunerState, knob: Knob, candidate: Candidate, run: Run
) -> TunerState:
    """Note that the program ignores `knob`, and what it uses."""
    seen = run.effects
    if not state.in_phase(knob):
        return state.set_verdict(knob, "other-phase", other_phase(knob, state))
    value = seen.dtype if knob.kind == "precision" else REGISTRY[knob.kind].observed(seen)
    used = f"{value:g}" if isinstance(value, float) else str(value)
    change = change_of(candidate, knob)
    if change is not None and (cause := not_applied(change, run)):
        return state.set_verdict(knob, "not-applied", f"Could not be tried: {cause}.")
    override = overriding(knob.path, change and change.new, run)
    site = seen.loader_site if knob.kind in LOADER_KINDS else None
    built = f" (DataLoader built at {site})" if site else ""
    reason = (
        f"Ignored by the program: it uses {used}{built} whatever the config says{override}."
    )
    return state.set_verdict(knob, "ignored", reason)


def other_phase(knob: Knob, state: TunerState) -> str:
    return f"Belongs to the {knob.phase} phase; what was measured here is {state.phase}."


def overriding(leaf: str, value: object, run: Run) -> str:
    """Clause on a command-line value that overrides the knob `leaf`; else empty."""
    name = leaf.rsplit(".", 1)[-1].split("[", maxsplit=1)[0]
    arguments = dict(run.effects.arguments)
    if name not in arguments or arguments[name] == value:
        return ""
    return f"; the program's argument --{name} {arguments[name]} is used instead"


def is_only_suggested(state: TunerState, knob: Knob) -> bool:
    """True if it changes which samples an update has: a batch, unless accumulation follows it."""
    if knob.kind == "length_grouping":
        return True
    if knob.kind != "batch_size":
        return False
    if state.context.workload.validation:
        return True
    value = state.current(knob)
    accepted = "update-samples" in state.context.workload.accept
    if not state.trains or accepted or not isinstance(value, int):
        return False
    larger = with_value(state, knob, 2 * value)
    return not isinstance(larger, knobs.InvalidChange) and all(
        change.kind != "grad_accum" for change in larger.changes
    )


def alters_training(state: TunerState, candidate: Candidate, run: Run) -> bool:
    """True if `candidate` changes the samples of an update, as far as seen.

    Where either run did not show them, a moving accumulation offsets the batch: if the
    program was seen to follow, or if torch's optimizer steps and no value was seen at all.
    """
    if not (state.trains or run.trains) or all(
        c.kind != "batch_size" for c in candidate.changes
    ):
        return False
    before, after = update_samples(state.original), update_samples(run)
    if before and after:
        return abs(after - before) > policy.SAMPLES_TIE * before
    along = [change for change in candidate.changes if change.kind == "grad_accum"]
    certain = run.effects.trains in {None, "optimizer"}
    followed = {"took effect", "unknown"} if certain else {"took effect"}
    if not along or any(verdict(c, state.original, run) not in followed for c in along):
        return True
    growth = 1.0
    for change in candidate.changes:
        if change.kind in {"batch_size", "grad_accum"}:
            growth *= (number_of(change.new) or 0.0) / (number_of(change.old) or 1.0)
    return growth > 1.0


def training_note(state: TunerState, times: float) -> str:
    """Advice on the learning rate of a batch `times` as large."""
    linear, root = (f"{numbers.measure(times**power, 3)} times" for power in (1.0, 0.5))
    return (
        f"{'' if any(run.updates for run in state.originals) else MAY_TRAIN}"
        f"One update would average over {linear} the samples. The learning rate and its schedule "
        f"have to follow. People start at {linear} the rate with SGD, at {root} with Adam. That "
        f"was not tried here.{run_length.also_moves(state, times)}"
    )
