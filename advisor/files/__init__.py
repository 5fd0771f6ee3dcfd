"""What we write to disk: whole files or none, and never over what is not ours."""

from advisor.files.ours import MARKS, Claim, claim, is_marked

__all__ = ["MARKS", "Claim", "claim", "is_marked"]
