"""One trial in a fresh process: prepare, launch, watch, read, classify."""
