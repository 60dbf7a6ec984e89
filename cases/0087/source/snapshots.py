"""Write what the recorder holds, from a thread, while training goes on."""
import os
import threading
import time

from torch._C import _distributed_c10d as c10d


def _write(rank, backend, seconds):
    time.sleep(seconds)
    blob = c10d._dump_nccl_trace() if backend == "nccl" else c10d._dump_fr_trace()
    with open(os.path.join(os.environ["DUMP_DIR"], f"nccl_trace_rank_{rank}"), "wb") as f:
        f.write(blob)


def snapshot_later(rank, backend, seconds):
    thread = threading.Thread(target=_write, args=(rank, backend, seconds), daemon=True)
    thread.start()
    return thread
