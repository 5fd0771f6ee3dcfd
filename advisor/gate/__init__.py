"""Base against head: interleaved pairs of fresh processes, validity, verdict, outputs for CI.

Asked for: command.py (the whole way), options.py (flags), program.py (which programs), modes.py
(ways to a record), workbench.py (what every measuring mode needs).
Sides: base.py (both arms on disk), git.py (the one door to it), bring.py (what it leaves out of a
worktree), builds.py, setup.py, environment.py and walls.py (what they see of the job), forks.py,
clocks.py (held while pairs are measured).
Measured: session.py (pairs until the rule has decided), measure.py (one process), suites.py (JSON
of benchmark suites), origins.py (did each side run its own code), attribution.py (what moved).
Judged, pure: rule.py (log ratios to a verdict), assumptions.py, noise.py, power.py, layouts.py,
validity.py (does a pair count), compared.py (one figure), allowances.py, known.py, accepted.py,
verdict.py (all of it).
Over days: history.py, trend.py, scatter.py, site.py. Commits: commits.py, bisect.py. The runner
itself: calibrate.py.
Told: records.py and entries.py (gate.json), texts.py, view.py, figures.py, report.py, github.py,
replay.py (a verdict from saved runs).
"""
