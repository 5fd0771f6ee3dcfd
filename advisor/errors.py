"""Errors of gpu-advisor, one exit code a class."""

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
    "not-judged": 48,
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
"""Own codes: a red build must never pass for a broken one."""

OPTIMIZE_EXIT_CODES = {"improved": 0, "unchanged": 0, "partial": 5}
"""By verdict: `partial` is a search that the budget ended."""


class AdvisorError(Exception):
    """Refusal with an event, a value and a next step."""

    exit_code: ClassVar[int] = 70

    def __init_subclass__(cls, exit_code: int = 70) -> None:
        cls.exit_code = exit_code


class UsageError(AdvisorError, exit_code=2):
    """The command line is wrong."""


class NoBaselineError(AdvisorError, exit_code=3):
    """Gate without a base; the message says the remedy."""


class ConfigMissingError(AdvisorError, exit_code=10):
    """The config file is not there."""


class ConfigUnreadableError(AdvisorError, exit_code=11):
    """The path is no readable UTF-8 text file."""


class ConfigSyntaxError(AdvisorError, exit_code=12):
    """Config that does not parse, with line and column."""


class ConfigReadOnlyError(AdvisorError, exit_code=13):
    """The tuned config could not be written back."""


class EditRefusedError(AdvisorError, exit_code=14):
    """Edit that could not be made byte-exact; nothing was written."""


class SettingsError(AdvisorError, exit_code=15):
    """gpu-advisor.toml or [tool.gpu-advisor] is wrong."""


class CommandMissingError(AdvisorError, exit_code=16):
    """Command that is missing or never names the config."""


class RevertConflictError(AdvisorError, exit_code=18):
    """Config edited since, so not safely put back."""


class TargetError(AdvisorError, exit_code=19):
    """Target GPU that is unknown or cannot be stood in for."""


class StateBusyError(AdvisorError, exit_code=20):
    """Lock held by another gpu-advisor."""


class ReportError(AdvisorError, exit_code=21):
    """report.json is missing, malformed or of another schema version."""


class OutputRefusedError(AdvisorError, exit_code=22):
    """Output that would replace a user's file, or fails."""


class StateUnusableError(AdvisorError, exit_code=23):
    """State folder that cannot be made or written."""


class BudgetTooSmallError(AdvisorError, exit_code=24):
    """Budget too small for a proof; the message names one."""


class NotMeasuredError(AdvisorError, exit_code=25):
    """Requested figure that cannot be measured here."""


class TrialFailedError(AdvisorError):
    """Failed command; `kind` is a key of FAILURE_EXIT_CODES."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.exit_code = FAILURE_EXIT_CODES[kind]  # type: ignore[misc]


class InterruptedByUserError(AdvisorError, exit_code=130):
    """Ctrl-C or SIGTERM; measurements so far are kept."""


class PredictionError(AdvisorError, exit_code=26):
    """The program cannot be predicted from its runs here."""


class EngineError(AdvisorError, exit_code=27):
    """Node that cannot run trials, or does not come."""


class NodeLostError(AdvisorError, exit_code=28):
    """Node lost during a trial: no evidence about the candidate."""

    def __init__(self, message: str, *, again: bool) -> None:
        super().__init__(message)
        self.again = again
        """Another node may do."""


class IsolationError(UsageError, exit_code=2):
    """Host on which foreign code could leave its sandbox."""
