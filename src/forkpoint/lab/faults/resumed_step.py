"""One node finds a newer checkpoint on its own disk and resumes from another step than the rest."""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import DDP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="resumed-step",
    title="one rank resumes from another step than the others",
    job=DDP,
    edits=(
        Edit(
            "    for step in range(STEPS):\n",
            "    first = newest_checkpoint()\n    for step in range(first, STEPS):\n",
        ),
        Edit(
            "def train() -> None:\n",
            (
                "def newest_checkpoint() -> int:\n"
                '    """The step to go on with, from the disk of this node."""\n'
                "    on_disk = {1: 12}  # the others were wiped\n"
                "    return on_disk.get(RANK, 0)\n"
                "\n"
                "\n"
                "def train() -> None:\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.DIVERGENT_PATH,),
        suspects=((1,),),
        action=(Action.FIX_CODE,),
        story="Rank 1 begins with step 12 and evaluates after step 14, its third; the others are at step 2 and reduce gradients.",
    ),
)
