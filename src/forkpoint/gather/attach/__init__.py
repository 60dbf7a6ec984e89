"""A job that hangs now: find its ranks, ask each for its recorder and its stacks, and see whether anything moves.

`jobs` finds the ranks, `asking` asks one of them, `stacks` reads /proc and NVML and runs py-spy, `look` combines it all, `folder`
writes it down and adjusts the verdict, and `hosts` has other machines do the same.
"""
