"""Probe that records inside the user's process.

Standard library only, syntax of Python 3.9. torch is touched only after the program has
imported it, and is reached through `sys.modules`. In the user's process this package is
loaded by file path as `_gpu_advisor_probe`, which shadows nothing of the program's: for
that reason its modules import each other relatively.
"""
