"""Isolation of writes by overlay, Landlock or guard.

The trial's supervisor imports this room without the packages that gpu-advisor depends on. All but
`capabilities.py` and `policy.py` is standard library only, and quick to import.
"""
