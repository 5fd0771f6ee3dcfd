"""The commands: one module each, from parsed flags to an exit code."""
