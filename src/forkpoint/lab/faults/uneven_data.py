"""The last rank's shard holds fewer batches, and its loop ends first.

13 of 118 public bugs: torchtitan-1634, axolotl-461.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import LOOP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="uneven-data",
    title="the last rank has fewer batches",
    job=LOOP,
    edits=(
        Edit(
            "    metrics, loader = Metrics(), Loader(STEPS)\n",
            "    metrics, loader = Metrics(), Loader(batches_of_shard())\n",
        ),
        Edit(
            "def train() -> None:\n",
            (
                "def batches_of_shard() -> int:\n"
                "    rows = [8 * STEPS, 8 * STEPS, 8 * STEPS, 8 * STEPS - 70]\n"
                "    return rows[RANK] // BATCH\n"
                "\n"
                "\n"
                "def train() -> None:\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.DIVERGENT_PATH,),
        suspects=((3,),),
        action=(Action.FIX_CODE,),
        story="Rank 3 has nine batches less and waits in the last barrier; the others count rows.",
    ),
)
