"""Base against head: interleaved pairs of fresh processes, validity, verdict, outputs for CI."""
