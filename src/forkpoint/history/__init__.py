"""The store of incidents: have we seen this before, is it this node again, and what did it cost?

`incident` is what is stored, `fingerprint` says which incidents have the same fork, `tables` and `store` are the database
(SQLite or PostgreSQL), `queries` reads it, `nodes` computes odds, `seen` and `page` show. `keeping` is the entry point for
callers with a verdict: a failing store costs a warning, never the verdict. Only `tables`, `store` and `queries` import
SQLAlchemy.
"""
