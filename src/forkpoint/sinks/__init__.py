"""Where teams look: a verdict told to chat, pagers, tickets and trackers. One file per service, in `services/`.

A `Notice` (`notice.py`) is what is told; `describe.py` makes it from a verdict. Sending happens in a process of its own
(`worker.py`; `live/notifying.py` starts it), with a limit for everything: a service that is slow, broken or hostile costs
one line on standard error, never the verdict or the job.
"""
