"""One trial: a measured process from start to end. `trial.py` is its whole way."""
