"""The store of incidents: have we seen this before, is it this node again, and what did it cost?

`incident` is what is stored and by what its fork is recognised, `store` is the database (SQLite or PostgreSQL), `queries` reads it,
`nodes` computes odds, `page` shows. `keeping` is the entry point for callers with a verdict: a failing store costs a warning,
never the verdict. Only `store` and `queries` import SQLAlchemy.
"""
