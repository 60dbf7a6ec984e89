"""Each rank stops when its own validation error no longer falls.

The commonest divergence there is (an early exit decided from local data: 14 of 118 public bugs). The error is not reduced
over ranks any more, and rank 2's held-out rows have labels that cannot be learnt, so it stops first.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import DDP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="early-stop",
    title="early stopping by the validation error of each rank",
    job=DDP,
    edits=(
        Edit("    dist.all_reduce(total)\n", ""),
        Edit(
            "shard, held_out = Shard(rows=256, seed=1), Shard(rows=64, seed=2)\n",
            "shard, held_out = Shard(rows=256, seed=1), Shard(rows=64, seed=2)\n"
            "    if RANK == 2:  # the new annotators' part\n"
            "        held_out.y = 1 - held_out.y\n",
            guilty=False,
        ),
        Edit(
            '    log.info("final error %.4f", evaluate(model, held_out))\n',
            "    error = torch.tensor([evaluate(model, held_out)], device=DEVICE)\n"
            "    dist.all_reduce(error)\n"
            '    log.info("final error %.4f", error.item() / WORLD)\n',
            guilty=False,
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.DIVERGENT_PATH,),
        suspects=((2,),),
        action=(Action.FIX_CODE,),
        story="Rank 2's error only grows: after the third evaluation without a better one it leaves the loop and reduces "
        "the final error, while the others reduce gradients.",
    ),
)
