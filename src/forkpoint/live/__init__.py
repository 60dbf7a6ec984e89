"""What the live tools (guard, watch, run, serve, controller) share.

`diagnosing` starts a diagnosis in a child process and `worker` is that child, `stall` says when a job hangs, and
`processes` reads /proc. None but `worker` imports the engine: the guard uses the others inside training processes.
"""
