"""A TCPStore in a process of its own: prints its port, then its CPU seconds for every line it reads."""

import sys
import time
from datetime import timedelta

from torch._C._distributed_c10d import TCPStore

store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=30))
print(store.port, flush=True)
for _ in sys.stdin:
    print(time.process_time(), flush=True)
