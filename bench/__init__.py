"""Benchmarks against torchfrtrace on generated dumps: `make bench`."""
