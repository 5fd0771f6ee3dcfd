"""Whether two trials did the same work, and what differs, by what was observed.

A knob's name says nothing here. What the original's runs saw is compared with what a
candidate's run saw; where a fact is missing on either side it proves no difference, but
where more workers could only be safe if it were known, the change is left to the user.

A rule is a function of what is compared, which yields the differences that it sees:

items.py           which items a pass has, in what order, and which worker yields them
generators.py      random generators that workers copy
datasets.py   what the dataset keeps, and what the program sets of it
updates.py         samples of an update, and what else moves in it or counts batches
learning_rates.py  rates by update, their schedule, other numbers of the optimizer
losses.py          losses of the first updates
results.py         outputs and files of an inference
facts.py           facts that several of them read
"""

from collections.abc import Callable, Sequence

from advisor import numbers
from advisor.model import TRAINING_STEPS, Run, WorkDifference
from advisor.tuner.same_work import (
    datasets,
    generators,
    items,
    learning_rates,
    losses,
    results,
    updates,
)
from advisor.tuner.same_work.facts import (
    Compared,
    Differences,
    first_items,
    update_samples,
)

Rule = Callable[[Compared], Differences]
RULES: tuple[Rule, ...] = (
    generators.shared_generators,
    generators.seeded_loop,
    items.unsharded,
    items.repeated_items,
    items.other_passes,
    items.frozen_passes,
    items.other_content,
    items.other_lengths_of_passes,
    updates.updates_of_a_pass,
    results.other_files,
    items.dropped_items,
    datasets.changed_state,
    datasets.hidden_cache,
    datasets.set_by_program,
    datasets.set_by_init,
    datasets.set_by_loop,
    items.broken_sequence,
    items.alike_items,
    updates.other_updates,
    updates.other_parts,
    updates.other_update_rows,
    updates.untrained_batches,
    learning_rates.other_rates,
    learning_rates.other_settings,
    learning_rates.other_schedule,
    updates.other_averages,
    updates.other_distances,
    updates.other_buffers,
    updates.other_counts,
    updates.once_a_batch,
    updates.other_lengths,
    updates.other_edits,
    updates.other_statistics,
    losses.other_losses,
    losses.other_gradients,
    losses.mixed_losses,
    results.other_results,
    results.other_rows,
    results.shorter_texts,
)


def differences(originals: Sequence[Run], after: Run) -> tuple[WorkDifference, ...]:
    """What `after` did otherwise than the `originals`, most harmful first."""
    if not originals:
        return ()
    all_differences = [
        difference for rule in RULES for difference in rule(Compared(originals, after))
    ]
    return tuple(sorted(all_differences, key=lambda difference: not difference.refused))


def observed(originals: Sequence[Run], after: Run) -> dict[str, str]:
    """Words on what stayed the same, by `items` and `updates`."""
    texts: dict[str, str] = {}
    if not originals:
        return texts
    before = originals[-1]
    if items.is_same_pass(before, after):
        texts["items"] = f"the same {items.items_of_a_pass(after) or 0:g} items a pass"
    else:
        for name, words in (
            ("came", "the same items"),
            ("drawn", "same items, other draws"),
        ):
            old, new = first_items(before, name).first, first_items(after, name).first
            size = min(len(old), len(new))
            if size and set(old[:size]) == set(new[:size]):
                texts["items"] = words
                break
        else:
            distinct = first_items(after, "came").distinct
            if distinct and distinct[-1] == 2 ** len(distinct):
                texts["items"] = f"the first {distinct[-1]} items all differ; other draws"
    samples = update_samples(after)
    if after.step_kind in TRAINING_STEPS and samples:
        seen = after.work.updates_seen if after.work else None
        many = f", {numbers.many(seen, 'update')}" if seen else ""
        texts["updates"] = f"{samples:g} samples an update{many}"
    return texts
