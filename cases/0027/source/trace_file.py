"""Keep the recorder's view of this process."""
import os
from torch._C import _distributed_c10d as c10d


def write_trace(rank, backend):
    blob = c10d._dump_nccl_trace() if backend == "nccl" else c10d._dump_fr_trace()
    with open(os.path.join(os.environ["DUMP_DIR"], f"nccl_trace_rank_{rank}"), "wb") as f:
        f.write(blob)
