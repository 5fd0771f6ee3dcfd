"""Memory and speed on another GPU, predicted from a trace of one step."""
