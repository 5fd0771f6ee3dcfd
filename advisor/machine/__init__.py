"""Host: GPUs, CPUs, memory, and the load while a trial runs.

gpu.py             the one door to NVML; readings.py: what a card says of itself at one moment
host.py            usable CPUs and memory
recording.py       samples of host and GPU while a trial runs, and what a window of them says
contention.py      CPU time of others, and the time a run waited for CPUs
target.py          which card a result is meant for; profiles.py over gpus.toml: the datasheets
lock.py            one measurement at a time on a GPU
"""
