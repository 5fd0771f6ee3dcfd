"""Errors of gpu-advisor, one exit code a class."""

from __future__ import annotations

from typing import ClassVar

FAILURE_EXIT_CODES = {
    "gpu-oom": 30,
    "host-oom": 31,
    "killed": 32,
    "shm": 33,
    "crash-import": 34,
    "crash-start": 35,
    "crash-step": 36,
    "config-rejected": 37,
    "no-steps": 38,
    "hang": 39,
    "timeout": 40,
    "non-finite": 41,
    "work-not-done": 42,
    "probe-not-loaded": 43,
    "outputs-not-apart": 44,
    "gpu-fault": 45,
    "write-denied": 46,
    "disk-full": 47,
    "interrupted": 130,
}

GATE_EXIT_CODES = {
    "pass": 0,
    "regression": 1,
    "error": 2,
    "inconclusive": 3,
    "no-baseline": 3,
    "invalid": 4,
}
"""Codes of its own: a red build must never be mistaken for a broken one."""

OPTIMIZE_EXIT_CODES = {"improved": 0, "unchanged": 0, "partial": 5}
"""By verdict: `partial` is a search that the budget ended."""


class AdvisorError(Exception):
    """Refusal with an event, a value and a next step."""

    exit_code: ClassVar[int] = 70


class UsageError(AdvisorError):
    """The command line is wrong."""

    exit_code = 2


class NoBaselineError(AdvisorError):
    """Gate without a base; the message says the remedy."""

    exit_code = 3


class ConfigMissingError(AdvisorError):
    """The config file is not there."""

    exit_code = 10


class ConfigUnreadableError(AdvisorError):
    """The path is no readable UTF-8 text file."""

    exit_code = 11


class ConfigSyntaxError(AdvisorError):
    """Config that does not parse, with line and column."""

    exit_code = 12


class ConfigReadOnlyError(AdvisorError):
    """The tuned config could not be written back."""

    exit_code = 13


class EditRefusedError(AdvisorError):
    """Edit that could not be made byte-exact; nothing was written."""

    exit_code = 14


class SettingsError(AdvisorError):
    """gpu-advisor.toml or [tool.gpu-advisor] is wrong."""

    exit_code = 15


class CommandMissingError(AdvisorError):
    """Command that is missing or never names the config."""

    exit_code = 16


class RevertConflictError(AdvisorError):
    """Config edited since, so not safely put back."""

    exit_code = 18


class TargetError(AdvisorError):
    """Target GPU that is unknown or cannot be stood in for."""

    exit_code = 19


class StateBusyError(AdvisorError):
    """Lock held by another gpu-advisor."""

    exit_code = 20


class ReportError(AdvisorError):
    """report.json is missing, malformed or of another schema version."""

    exit_code = 21


class OutputRefusedError(AdvisorError):
    """Output that would replace a user's file, or fails."""

    exit_code = 22


class StateUnusableError(AdvisorError):
    """State folder that cannot be made or written."""

    exit_code = 23


class BudgetTooSmallError(AdvisorError):
    """Budget too small for a proof; the message names one."""

    exit_code = 24


class NotMeasuredError(AdvisorError):
    """Requested figure that cannot be measured here."""

    exit_code = 25


class TrialFailedError(AdvisorError):
    """Failed command; `kind` is a key of FAILURE_EXIT_CODES."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.exit_code = FAILURE_EXIT_CODES[kind]  # type: ignore[misc]


class InterruptedByUserError(AdvisorError):
    """Ctrl-C or SIGTERM; measurements so far are kept."""

    exit_code = 130


class PredictionError(AdvisorError):
    """The program cannot be predicted from its runs here."""

    exit_code = 26


class EngineError(AdvisorError):
    """Node that cannot run trials, or does not come."""

    exit_code = 27


class NodeLostError(AdvisorError):
    """Node that went away during a trial: no evidence about the candidate."""

    exit_code = 28

    def __init__(self, message: str, *, again: bool) -> None:
        super().__init__(message)
        self.again = again
        """Another node may do."""
