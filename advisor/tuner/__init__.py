"""Search for faster settings, from results to the next request.

No clock, process or file: equal results give equal requests anywhere. Stages are
generators, replayed from the start for each request.
"""
