"""report.json, and the Markdown, HTML and figures that are drawn from it."""
