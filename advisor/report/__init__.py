"""What was found, as report.json, and everything drawn from it. The only user of templates/."""
