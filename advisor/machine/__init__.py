"""Host: GPUs, CPUs, memory, and the load while a trial runs."""
