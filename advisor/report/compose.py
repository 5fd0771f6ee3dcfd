"""From a finished search to report.json: every sentence of the report is decided here."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from advisor import __version__
from advisor.invocation import Invocation
from advisor.machine.target import Target
from advisor.model import Candidate, Decision, Failure, Interval, Machine, Run
from advisor.report.model import (
    AdviceEntry,
    Bottleneck,
    ChangeEntry,
    DecisionEntry,
    Gain,
    MachineEntry,
    OptimizeVerdict,
    PairEntry,
    QualityPoint,
    Report,
    Side,
    TargetEntry,
    TrialEntry,
)
from advisor.tuning.bottleneck import Diagnosis, diagnose
from advisor.tuning.confirm import Confirmation, proven
from advisor.tuning.runner import COMMAND_LINE, Taken
from advisor.tuning.search import Search
from advisor.tuning.stages import ceilings_of
