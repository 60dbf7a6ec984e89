"""Dumps in, traces out. Dumps are untrusted: nothing in them is executed, and none can exhaust memory or time."""
