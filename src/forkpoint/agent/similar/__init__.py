"""Recorded cases that are like the one at hand.

`index.toml` holds what is told of each case in the repository's `cases/`; `build.py` writes it, `search.py` compares.
"""

from forkpoint.agent.similar.search import RecordedCase, Similar, find_similar, recorded

__all__ = ["RecordedCase", "Similar", "find_similar", "recorded"]
