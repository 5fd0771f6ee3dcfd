"""One trial: a measured process from start to classification. `trial.py` is its whole way."""
