"""Rank traces as bytes: what is kept of 100,000 ranks, what travels between nodes, and what every decoder must write.

`records` packs a trace, `trace` reads a packed one where it lies, `tables` holds once what ranks share. The layouts are
the summary's format (docs/summaries.md): another decoder must give the same bytes.
"""
