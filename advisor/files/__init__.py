"""Output files, written whole and never over the user's."""

from advisor.files.ours import MARKS, Claim, claim, is_marked
from advisor.files.reading import read_whole

__all__ = ["MARKS", "Claim", "claim", "is_marked", "read_whole"]
