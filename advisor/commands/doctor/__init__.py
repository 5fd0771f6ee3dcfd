"""What this machine costs a program before a line of it runs: readings, a table, a verdict."""
