"""Machine checks: readings, a table, a verdict."""
