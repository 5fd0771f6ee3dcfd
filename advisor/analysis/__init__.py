"""Pure analysis of recorded events: steps, window, throughput, breakdown of time.

Runs in the parent, without torch. `events.py` reads the log of one process; `step_detection.py`
and `training_steps.py` find its steps, `window.py` the measured part of them, `breakdown.py` where
the time went, `progress.py` decides when to count, stop or diagnose.
"""
