"""One trial: a measured process from start to classification.

trial.py             a trial to its run or its failure
job.py               files, directories, argv and environment of one process
launch.py            starts the job through its supervisor, and ends it
supervisor.py        the process between: no child outlives the parent
monitor.py           waits for the end, and acts on the limits
limits.py            the limits of a trial
output.py            streams: tails, logs, lines counted by a pattern
resources.py         memory and CPU of the process tree; out-of-memory kills
process_records.py   records of the probe, one a process: format and parser
measuring.py         the event log of each process to its measurement
measured_run.py      the records of all processes to one run
classify.py          the end of a trial to a kind of failure
failure_patterns.py  exceptions and messages that name a failure, as data
written_files.py     files that a program wrote, and the items in them
"""

from advisor.runner.trial import run_trial

__all__ = ["run_trial"]
