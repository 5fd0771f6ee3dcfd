"""What the host is: its GPUs, CPUs and memory, and what it does while a trial runs."""
