"""The case for anyone's agent, over the Model Context Protocol (extra `mcp`): the same tools, ledger and checks as for a model that forkpoint drives itself."""
