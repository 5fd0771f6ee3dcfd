"""Where a test's programs find their `sitecustomize`: torch without what they do not use."""

import os
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PYTHONPATH = os.pathsep.join([str(FOLDER.parents[1]), str(FOLDER)])
"""For a process that needs this checkout's packages and runs programs of a test."""
WHOLE = "GPU_ADVISOR_TESTS_WHOLE_TORCH"
"""Environment variable that leaves torch as it is."""
