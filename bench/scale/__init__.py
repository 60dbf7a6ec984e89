"""Worlds of 64 to 100,000 ranks with one planted fault each: how right the answer is, and what it costs: `make bench-scale`."""
