"""Gate of a change: base against head, in paired processes.

cli.py              arguments, the whole call, and the ways to a record
config.py           programs to measure
checkout.py         both arms on disk, the only calls of git, and the code that each arm ran
setup_step.py       --setup, and the isolation's notes
runner.py           pairs until the test decides
process.py          one process to its rates
sequential_test.py  log ratios to an outcome (pure)
comparison.py       one figure of one workload, and its limit
verdict.py          pairs that count, and raw values to a verdict (pure)
history.py          sessions over days
github.py           job files, environment, forks
report.py           gate.md, gate.json, comment
schema.py           the record
"""
