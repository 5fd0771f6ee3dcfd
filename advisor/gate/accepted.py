"""Slowdowns that a maintainer accepts once: by a label on the request, or by base's own settings.

Neither can be had by the request itself. A label comes with the event, and only who may triage a
repository can set one; `[[accepted]]` in gpu-advisor.toml is read in the commit that the request is
compared with. Both name what they accept, up to what share, and hold for one request or commit.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from advisor import settings
from advisor.gate import forks
from advisor.gate.base import read_event
from advisor.gate.records import Acceptance
from advisor.settings import parse_share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from advisor.gate.base import Checkout

DEFAULT_LABEL = "slowdown accepted"
NAMED = re.compile(r":\s*(\S.*?)\s+(?:up to\s+)?(\d+(?:\.\d+)?\s*%)\s*", re.ASCII)


class Found(NamedTuple):
    accepted: tuple[Acceptance, ...]
    notes: tuple[str, ...]
    """Labels that were meant to accept something and do not, and why."""


def find(label: str, base: Checkout, head: Checkout, environ: Mapping[str, str]) -> Found:
    """What is accepted of `head`; labels that begin with `label` count. Raises SettingsError."""
    pull = read_event(environ).get("pull_request")
    event = read_event(environ) if isinstance(pull, dict) else {}
    notes: list[str] = []
    found = [*_by_labels(label, event, environ, notes), *_by_settings(base, head, event)]
    return Found(tuple(found), tuple(notes))


def _by_settings(base: Checkout, head: Checkout, event: Mapping[str, Any]) -> Iterator[Acceptance]:
    """Entries of base's settings that name this request, or the commit that is measured."""
    pull = event.get("pull_request", {})
    tip = pull.get("head")
    shas = {head.revision.sha, tip.get("sha") if isinstance(tip, dict) else None}
    for entry in settings.load(settings.find(base.cwd)).accepted:
        by_commit = any(str(sha).startswith(entry.of) for sha in shas if sha)
        if by_commit or entry.of == f"#{pull.get('number')}":
            yield Acceptance(
                workload=entry.workload,
                up_to=entry.up_to,
                by="base's settings",
                who=entry.who,
                why=entry.why,
            )


def _by_labels(
    wanted: str, event: Mapping[str, Any], environ: Mapping[str, str], notes: list[str]
) -> Iterator[Acceptance]:
    labels = event.get("pull_request", {}).get("labels")
    for label in labels if isinstance(labels, list) else ():
        name = label.get("name") if isinstance(label, dict) else None
        if not isinstance(name, str) or not wanted or not name.startswith(wanted):
            continue
        named = NAMED.fullmatch(name[len(wanted) :])
        if named is None:
            notes.append(
                f"the label {name!r} accepts nothing: it has to say what, and how much, such as "
                f"'{wanted}: train 12%'"
            )
            continue
        who = _who_set(name, event)
        author = event["pull_request"].get("user")
        own = isinstance(author, dict) and who is not None and who == author.get("login")
        if own and forks.is_foreign(environ):
            notes.append(f"the label {name!r} accepts nothing: the fork's own author set it")
            continue
        why = label.get("description")
        yield Acceptance(
            workload=named[1],
            up_to=parse_share(named[2]),
            by="label",
            who=who,
            why=why if isinstance(why, str) else "",
        )


def _who_set(name: str, event: Mapping[str, Any]) -> str | None:
    """Who set the label; None unless the event is of that very act."""
    label, sender = event.get("label"), event.get("sender")
    if event.get("action") != "labeled" or not isinstance(label, dict) or label.get("name") != name:
        return None
    login = sender.get("login") if isinstance(sender, dict) else None
    return login if isinstance(login, str) else None
