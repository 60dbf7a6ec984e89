"""Incidents that were kept: have we seen this before, is it this node again, and what did it cost?

`incident` says what is kept of a verdict, `fingerprint` which incidents are the same fork, `tables` and `store` hold them
(SQLite or PostgreSQL), `queries` asks, `nodes` works out odds, `seen` and `page` show. `keeping` is the door for whoever has a
verdict: a store that fails costs a warning, never the verdict. Only `tables`, `store` and `queries` import SQLAlchemy.
"""
