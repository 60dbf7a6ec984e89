"""Documents that are too long are cut in two, so one rank has one micro-batch more.

verl-5591 computes the number of micro-batches from local lengths in the same way.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import FSDP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="micro-batch-count",
    title="a long document gives one rank one micro-batch more",
    job=FSDP,
    edits=(
        Edit(
            "    return [torch.randint(0, VOCABULARY, (4, length), generator=generator).to(DEVICE) for length in lengths]\n",
            (
                "    if RANK == 1 and step == 7:\n"
                "        lengths[0] = 60\n"
                "    batches = [torch.randint(0, VOCABULARY, (4, length), generator=generator).to(DEVICE) for length in lengths]\n"
                "    return [part for batch in batches for part in batch.split(48, dim=1)]\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.DIVERGENT_PATH,),
        suspects=((1,),),
        action=(Action.FIX_CODE,),
        story="In step 7 rank 1 has three micro-batches: it gathers weights once more while the others add up the gradient norm.",
    ),
)
