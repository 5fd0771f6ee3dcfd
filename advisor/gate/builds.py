"""The checkouts of each arm: one, or one for each time that it is built."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from advisor.errors import UsageError
from advisor.gate import base

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from advisor.gate.base import Checkout
    from advisor.gate.entries import Variant
    from advisor.gate.records import Revision


@contextlib.contextmanager
def checkouts(
    head: Checkout, revision: Revision, links: Sequence[str], rebuilds: int
) -> Iterator[Mapping[Variant, tuple[Checkout, ...]]]:
    """Base, which is `revision`, in a worktree of its own, and head where it is; or each in as
    many worktrees as it is built. Gone at the end.

    Raises what `base.base_checkout` does, and UsageError for changes that no commit holds.
    """
    if rebuilds > 1 and head.revision.dirty:
        msg = (
            "--rebuilds builds head in checkouts of its commit, and there are uncommitted changes. "
            "Commit them, or leave --rebuilds out."
        )
        raise UsageError(msg)
    with contextlib.ExitStack() as stack:

        def checked_out(what: Revision) -> tuple[Checkout, ...]:
            made = (base.base_checkout(head, what, links) for _ in range(rebuilds))
            return tuple(stack.enter_context(each) for each in made)

        bases = checked_out(revision)
        yield {"base": bases, "head": checked_out(head.revision) if rebuilds > 1 else (head,)}
