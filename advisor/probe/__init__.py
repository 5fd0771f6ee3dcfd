"""Probe that records inside the user's process.

Standard library only, syntax of Python 3.9. torch is touched only after the program itself
imported it, and is reached through `sys.modules`, never imported. In the user's process this
package is loaded by file path under the name `_gpu_advisor_probe`, so that nothing of the
program's namespace is shadowed; for that reason its modules import each other relatively.
"""
