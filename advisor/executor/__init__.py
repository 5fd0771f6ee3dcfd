"""Things measured against each other: attempts, comparisons, and the budget that both share."""
