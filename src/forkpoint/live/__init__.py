"""What watches jobs while they run: the tools `watch`, `run` and `serve`, and what they share with guard and controller.

`diagnosing` starts a diagnosis in a child process and `worker` is that child, `stall` says when a job hangs, and
`processes` reads /proc. None of these but `worker` imports the engine: the guard uses them inside training processes.
"""
