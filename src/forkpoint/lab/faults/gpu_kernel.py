"""A kernel on one rank's GPU does not end, so the gradients that are reduced next are never ready there."""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import DDP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="gpu-kernel",
    title="a kernel does not end on one rank",
    job=DDP,
    backends=("nccl",),
    edits=(
        Edit(
            "        loss = cross_entropy(model(x), y)\n",
            "        if RANK == 1 and step == 13:\n"
            "            torch.cuda._sleep(1 << 42)  # a loop that does not see its end\n"
            "        loss = cross_entropy(model(x), y)\n",
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.GPU_STALL, Cause.HOST_STALL),
        suspects=((1,), ()),
        action=(Action.FIX_CODE_OR_HARDWARE, Action.FIX_CODE, Action.INVESTIGATE),
        story="In step 13 the stream of rank 1 holds a kernel that does not end. All ranks issue the reduce of the gradients; "
        "that of rank 1 never starts, and its host waits for the loss.",
    ),
)
