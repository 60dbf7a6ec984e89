"""Dumps in, one form of traces out. Dumps are untrusted: nothing in them is executed, and none can exhaust the machine."""
