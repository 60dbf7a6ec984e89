"""How sure a finding is, in four steps: a number without a meaning would be an invention."""

DECIDED = 0.95
"""Two independent kinds of evidence say the same."""
STRONG = 0.85
"""Recorded facts show it directly, and nothing seen speaks against it."""
LIKELY = 0.7
"""The best reading of the facts; another one is possible."""
HEALTHY = 0.9
"""All that was looked at is well; what was not recorded stays unseen."""
WEAK = 0.5
"""What is left when the rest is ruled out."""
