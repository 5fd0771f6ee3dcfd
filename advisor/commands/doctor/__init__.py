"""Checks of a machine before a program runs on it: readings, a table, a verdict."""
