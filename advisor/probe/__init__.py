"""Probe that records inside the user's process.

Standard library only, syntax of Python 3.9. torch is reached through `sys.modules`,
once the program has imported it. The user's process loads this package by file path as
`_gpu_advisor_probe`, which shadows nothing of the program's: so its imports are relative.
"""
