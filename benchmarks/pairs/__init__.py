"""Small programs that exist twice: with their values in a YAML, and in the code."""
