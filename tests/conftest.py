import os
import signal

from hypothesis import settings

# A loaded machine is no failure: nothing here is asserted about time. The same examples every time, so that a change is
# judged by what it changes; FORKPOINT_EXPLORE=1 looks for new ones.
settings.register_profile("forkpoint", deadline=None, derandomize=not os.environ.get("FORKPOINT_EXPLORE"))
settings.load_profile("forkpoint")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a shell: programs that tests interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
