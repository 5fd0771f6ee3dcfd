"""Search for faster settings, from results to the next request.

It holds no clock, no process and no file: the same results give the same request anywhere.
Stages are generators, in the order of `pipeline.py`; each request replays them from the start.
"""
