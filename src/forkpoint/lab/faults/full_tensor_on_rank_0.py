"""The norm of a sharded weight is worked out on rank 0 only, for its log.

full_tensor() hides a collective, as state_dict() and torchmetrics' compute() do (torchmetrics-938, lightning-16541).
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import FSDP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="full-tensor-on-rank-0",
    title="full_tensor() under a condition that only rank 0 meets",
    job=FSDP,
    edits=(Edit("        if step % NORM_EVERY == 0:\n", "        if step % NORM_EVERY == 0 and RANK == 0:\n"),),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.DIVERGENT_PATH,),
        suspects=((0,),),
        action=(Action.FIX_CODE,),
        story="After step 0 rank 0 gathers the weight of the head while the others gather the weights of the next forward.",
    ),
)
