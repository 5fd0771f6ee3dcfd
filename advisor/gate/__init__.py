"""Gate of a change: base against head, in paired processes."""
