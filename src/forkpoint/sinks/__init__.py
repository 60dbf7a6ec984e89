"""Sends verdicts to chat, pagers, tickets and experiment trackers: `services/`, by how they are reached.

A `Notice` (`notice.py`) is what is sent; `describe.py` makes it from a verdict. Sending happens in a separate process
(`worker.py`; `live/children.py` starts it), with limits on everything: a slow, broken or hostile service costs one line
on standard error, never the verdict or the job.
"""
