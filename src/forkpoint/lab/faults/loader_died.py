"""The loader thread of one rank ends with an exception; its loop waits for a batch that nobody will prepare."""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import LOOP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="loader-died",
    title="the loader thread of one rank died, its loop waits",
    job=LOOP,
    edits=(
        Edit(
            "        generator = torch.Generator().manual_seed(13 * index + RANK)\n",
            (
                "        if RANK == 0 and index == 16:\n"
                '            raise KeyError("label")\n'
                "        generator = torch.Generator().manual_seed(13 * index + RANK)\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.HOST_STALL, Cause.RANK_LOST),
        suspects=((0,),),
        action=(Action.FIX_CODE, Action.FIX_CODE_OR_STORAGE, Action.INVESTIGATE),
        story="The loader of rank 0 raises at batch 16; the loop takes what is left and waits for ever.",
    ),
)
