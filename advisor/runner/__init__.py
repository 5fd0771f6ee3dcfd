"""One trial: a measured process from start to classification. `trial.py` is its whole way."""

from advisor.runner.trial import run_trial

__all__ = ["run_trial"]
