"""The strategy: which candidates to run, in which order, and when a gain counts as proven."""
