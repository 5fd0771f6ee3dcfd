"""Runs a module of this checkout as `python -m` does: module.py MODULE ARG..."""

import runpy
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
