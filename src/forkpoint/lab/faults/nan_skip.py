"""A rank whose loss is not finite skips the step, and with it the reduce of the gradients.

DDP's reduces all look alike: the rank is one behind, and is seen only at the next call of another size. Gradients of
different steps are added until then.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import DDP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="nan-skip",
    title="a step with a non-finite loss is skipped by the rank that has it",
    job=DDP,
    edits=(
        Edit(
            "        x, y = shard.batch(step)\n",
            "        x, y = shard.batch(step)\n        if RANK == 1 and step == 6:  # a broken record\n            x = x / 0\n",
            guilty=False,
        ),
        Edit(
            "        optimizer.zero_grad()\n",
            "        if not loss.isfinite():\n"
            '            log.warning("step %d: loss is not finite, skipped", step)\n'
            "            continue\n"
            "        optimizer.zero_grad()\n",
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.DIVERGENT_PATH,),
        suspects=((1,),),
        action=(Action.FIX_CODE,),
        story="Rank 1 skips the backward of step 6. Its later reduces pair with those of the step before, until the "
        "evaluation after step 9, which the others reach while rank 1 still reduces gradients.",
    ),
)
