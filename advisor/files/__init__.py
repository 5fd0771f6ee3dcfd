"""What we write: whole files or none, and never over what is not ours. What we read has an end."""

from advisor.files.ours import MARKS, Claim, claim, is_marked
from advisor.files.reading import read_whole

__all__ = ["MARKS", "Claim", "claim", "is_marked", "read_whole"]
