"""Things measured against each other: attempts, comparisons, and the budget that both share.

attempts.py    what is asked for, and what came of it
interleave.py  arms in turn, order flipped, disturbed rounds again: the one place that does it
comparison.py  rounds to an interval; pure
program.py     a candidate of the user's program as a trial
lab.py         asks to answers: history, budget, disturbance
"""
