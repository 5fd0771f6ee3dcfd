"""One trial in a process over simulated cards: NVML of the process that measures is theirs, too.

python -m tests.fakegpu.trial TRIAL RESULT     # both pickled
"""

import pickle
import sys
from pathlib import Path

from advisor.runner.trial import run_trial

if __name__ == "__main__":
    trial, result = map(Path, sys.argv[1:])
    result.write_bytes(pickle.dumps(run_trial(pickle.loads(trial.read_bytes()))))
