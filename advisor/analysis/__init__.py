"""Pure analysis of recorded events: steps, window, throughput, breakdown of time."""
