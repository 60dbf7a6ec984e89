"""`forkpoint lab collectives`: sends a known pattern through every collective, and times every pair of ranks.

This package plans, judges and prints, and needs no torch. `lab/jobs/collectives` is what the ranks run.
"""
