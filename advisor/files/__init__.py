"""Output files, written whole and never over the user's.

ours.py     places claimed before the first trial, files known by their mark
atomic.py   whole files in one step, and two files that change places in one step
reading.py  files that somebody names, read whole, also from a folder of the user's program
"""

from advisor.files.ours import MARKS, Claim, claim, is_marked
from advisor.files.reading import read_whole

__all__ = ["MARKS", "Claim", "claim", "is_marked", "read_whole"]
