"""`rank_only(0)`, by the name that people look for."""

from forkpoint.consensus.rank_only import rank_only

rank_zero_only = rank_only(0)
