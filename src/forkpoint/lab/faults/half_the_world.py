"""A sum over the whole world is made by the first rank of each `tp` group only.

slime-393, verl-5895 and megatron-textgen: a collective on a larger group than that of the ranks that come to it.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import MESH
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="half-the-world",
    title="an all_reduce of the world is called by the first tp ranks only",
    job=MESH,
    edits=(
        Edit(
            "        if step % LOG_EVERY == 0:\n",
            '        if step % LOG_EVERY == 0 and mesh.get_local_rank("tp") == 0:\n',
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.DIVERGENT_PATH,),
        suspects=((), (0, 2)),
        action=(Action.FIX_CODE,),
        story="After step 0 ranks 0 and 2 add up the loss over the world; ranks 1 and 3 go on to the next forward. Two against two: only the source says which two are wrong.",
    ),
)
