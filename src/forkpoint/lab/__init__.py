"""Small real jobs, broken on purpose: each run ends in a capture like a person's, with the truth beside it."""
