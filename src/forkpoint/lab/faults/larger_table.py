"""A table is broadcast into a larger one on one rank: it completes, and the last rows stay as they were.

deepspeed-5117: the last, incomplete batch is broadcast into a tensor of full size.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import LOOP
from forkpoint.model.verdict import Action, Cause, Symptom

FAULT = Fault(
    name="larger-table",
    title="broadcast into a larger table on one rank",
    job=LOOP,
    ends=True,
    edits=(
        Edit(
            "    counts, norms = make_groups()\n",
            (
                "    counts, norms = make_groups()\n"
                "    words = 32 if RANK == 3 else 30  # that node has a newer word list\n"
                "    table = torch.zeros(words, 4, device=DEVICE)\n"
                "    dist.broadcast(table, src=0)\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=(Symptom.NO_HANG, *HANGS),
        cause=(Cause.METADATA_MISMATCH,),
        suspects=((3,),),
        action=(Action.FIX_CODE,),
        story="Rank 3 receives 30 rows into 32; two rows stay zero. On NCCL it may hang instead.",
    ),
)
