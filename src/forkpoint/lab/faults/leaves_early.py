"""The rank with the shortest shard is done first and leaves properly, with exit code 0.

automodel-1601 and axolotl-461: ranks have different numbers of batches.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import MOE
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="leaves-early",
    title="the rank with the shortest shard finishes and leaves",
    job=MOE,
    edits=(
        Edit("    for step in range(STEPS):\n", "    for step in range(steps_of_shard()):\n"),
        Edit(
            "def train() -> None:\n",
            (
                "def steps_of_shard() -> int:\n"
                "    rows = {0: 15 * TOKENS}\n"
                "    return rows.get(RANK, STEPS * TOKENS) // TOKENS\n"
                "\n"
                "\n"
                "def train() -> None:\n"
            ),
        ),
        Edit("    train()\n    dist.barrier()\n", "    train()\n", guilty=False),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.DIVERGENT_PATH, Cause.RANK_LOST),
        suspects=((0,),),
        action=(Action.FIX_CODE,),
        story="Rank 0 has 15 batches, destroys its group and exits with 0; the others exchange counts for step 15.",
    ),
)
