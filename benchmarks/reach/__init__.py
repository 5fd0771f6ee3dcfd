"""Programs such as people publish, unaware of gpu-advisor, measured and tuned by it."""
