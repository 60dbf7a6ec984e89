"""The case for anyone's agent, over the Model Context Protocol (extra `mcp`).

The same tools as for a model that forkpoint drives itself, and the same ledger: what was shown has an id, what is claimed
is checked, and the verdict beside it is the one that was there before anybody asked.

    Desk (one case, read beside the protocol) --questions--> Answer --server.py--> stdio or loopback HTTP
"""
