"""gpu-advisor: measure what a PyTorch program could do on this machine, and write it down."""

__version__ = "0.1.0"
