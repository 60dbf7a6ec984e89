"""Recorded cases that resemble the current one.

`index.toml` describes each case in the repository's `cases/`; `search.py` writes it (`make docs`) and searches it.
"""

from forkpoint.agent.similar.search import RecordedCase, Similar, find_similar, recorded

__all__ = ["RecordedCase", "Similar", "find_similar", "recorded"]
