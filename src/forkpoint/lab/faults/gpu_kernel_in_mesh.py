"""A kernel on one rank's GPU does not end; all ranks have issued the reduce behind it."""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import MESH
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="gpu-kernel-in-mesh",
    title="a kernel does not end on one rank of a mesh",
    job=MESH,
    backends=("nccl",),
    edits=(
        Edit(
            "        average(model, dp)\n",
            (
                "        if RANK == 2 and step == 6:\n"
                "            torch.cuda._sleep(1 << 42)  # a loop that does not see its end\n"
                "        average(model, dp)\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.GPU_STALL, Cause.HOST_STALL),
        suspects=((2,), ()),
        action=(Action.FIX_CODE_OR_HARDWARE, Action.FIX_CODE, Action.INVESTIGATE),
        story="In step 6 the stream of rank 2 holds a kernel that does not end; the reduces that wait behind it never start there.",
    ),
)
