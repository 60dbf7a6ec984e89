"""Serves a case to any agent over the Model Context Protocol (extra `mcp`).

The tools and the ledger are the same as for a model that forkpoint drives itself: shown facts have ids, claims are checked,
and nothing that an agent asks changes the verdict.

    Desk (one case, read in a thread of its own) --questions--> Answer --server.py--> stdio or loopback HTTP
"""
