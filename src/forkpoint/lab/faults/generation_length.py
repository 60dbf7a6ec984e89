"""Prompts are filled up to the same length, so a longer prompt needs fewer forwards.

colossal-3162: the generation loop ends when the local batch is finished, although every forward is collective.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import FSDP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="generation-length",
    title="a longer prompt needs fewer forwards on one rank",
    job=FSDP,
    edits=(
        Edit("    for _ in range(length):\n", "    while tokens.shape[1] <= length:\n"),
        Edit(
            "    tokens = torch.tensor([[RANK]], device=DEVICE)\n",
            "    prompts = {2: [2, 7]}\n    tokens = torch.tensor([prompts.get(RANK, [RANK])], device=DEVICE)\n",
            guilty=False,
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.DIVERGENT_PATH,),
        suspects=((2,),),
        action=(Action.FIX_CODE,),
        story="In the first sample, after step 5, rank 2 makes three forwards and the others four: rank 2 goes on to train while the others gather weights once more.",
    ),
)
