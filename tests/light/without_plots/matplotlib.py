"""A matplotlib that is not installed."""

msg = "No module named 'matplotlib'"
raise ModuleNotFoundError(msg, name="matplotlib")
