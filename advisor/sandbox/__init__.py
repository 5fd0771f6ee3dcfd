"""Isolation of writes by overlay, Landlock or guard.

All but `capabilities.py` and `policy.py` is standard library only, for the trial's supervisor.
"""
