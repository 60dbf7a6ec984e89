"""Layers are left out at random, and every rank draws for itself.

A block that is left out is not gathered. pytorch-147561 is a compiler that decided for each rank alone.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import FSDP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="layer-drop",
    title="each rank drops layers by its own dice",
    job=FSDP,
    edits=(
        Edit(
            "        for block in self.blocks:\n",
            (
                "        for block in self.blocks:\n"
                "            if torch.rand((), generator=self.dice) < 0.05:\n"
                "                continue\n"
            ),
        ),
        Edit(
            "        self.head = nn.Linear(width, VOCABULARY)\n",
            (
                "        self.head = nn.Linear(width, VOCABULARY)\n"
                "        self.dice = torch.Generator().manual_seed(40 + RANK)\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.DIVERGENT_PATH,),
        suspects=((0,),),
        action=(Action.FIX_CODE,),
        story="With these seeds rank 0 is the first to leave out a block, the second of three, in its seventh forward (step 3): it gathers the weights of the third while the others gather those of the second.",
    ),
)
