"""Endings of a trial, as the judge is given them."""

from __future__ import annotations

from dataclasses import replace

from advisor.model import Candidate, Change, Failure, Trial
from advisor.runner.classify import classify
from advisor.runner.monitor import TrialExit
from advisor.runner.process_records import ProcessRecord

CHANGE = Change(
    document="c.json", path="data.batch_size", kind="batch_size", knob_class="free", old=1, new=8
)
TRIAL = Trial(
    id="1",
    purpose="search",
    label="batch_size=8",
    command=("python", "run.py"),
    cwd="/",
    scratch="/s",
    candidate=Candidate(changes=(CHANGE,)),
)
STEPPED = ProcessRecord(pid=7, state="exited", steps=40)
BOOTED = ProcessRecord(pid=7, state="torch")
DIED = TrialExit(end="exited", started=0.0, ended=9.0, exit_code=1, processes=(BOOTED,))
DONE = replace(DIED, exit_code=0, processes=(STEPPED,))


def failure_of(ending: TrialExit, *, measured: bool = False) -> Failure:
    """The failure that such an ending must be."""
    found = classify(TRIAL, ending, measured=measured)
    assert found is not None
    return found


def kind_of(ending: TrialExit, *, measured: bool = False) -> str | None:
    """What such an ending means, by the kind of its failure; None where the work was done."""
    found = classify(TRIAL, ending, measured=measured)
    return None if found is None else found.kind
