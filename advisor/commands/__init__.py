"""Commands, one module each, from flags to an exit code."""
