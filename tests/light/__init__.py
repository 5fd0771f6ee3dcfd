"""Where a test's programs find their `sitecustomize`: torch without what they do not use."""

import os
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PYTHONPATH = os.pathsep.join([str(FOLDER.parents[1]), str(FOLDER)])
"""For a process that needs this checkout's packages and runs programs of a test."""
WITHOUT_PLOTS = str(FOLDER / "without_plots")
"""First on a path that leaves out matplotlib: figures take most of the CPU seconds of a short
search."""
WHOLE = "GPU_ADVISOR_TESTS_WHOLE_TORCH"
"""Environment variable that leaves torch as it is."""
