"""Report: report.json, with its Markdown, HTML and figures."""
