"""Search for faster settings, from results to the next request.

No clock, process or file: the same results give the same request anywhere. Stages are
generators; each request replays them from the start.
"""
