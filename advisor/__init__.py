"""gpu-advisor: measurements of what a PyTorch program could do."""

__version__ = "0.1.0"
