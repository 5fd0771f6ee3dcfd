"""Prediction of memory and speed on a GPU that is not here, from a trace of one step."""
