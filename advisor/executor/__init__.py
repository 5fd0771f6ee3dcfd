"""Execution of trials and comparisons, inside one budget."""
