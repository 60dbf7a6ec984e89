"""`forkpoint lab collectives`: a known pattern through every collective, and the time of every pair of ranks.

What is here plans, judges and prints, and needs no torch. `lab/jobs/collectives` is what the ranks run.
"""
