"""What the live tools (guard, watch, run, serve, controller) share.

`children` starts the processes that diagnose, keep and notify, `worker` is the one that diagnoses, `stall` says when a
job hangs, and `processes` reads /proc. None but `worker` imports the engine: the guard uses the others inside training processes.
"""
