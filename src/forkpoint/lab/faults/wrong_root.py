"""One rank takes the weights from another root than the rest.

The recorder keeps no root: the calls look alike on all ranks, and only the source shows that their argument is local.
verl-5701 is another broadcast whose root does not fit.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import LOOP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="wrong-root",
    title="one rank broadcasts from another root",
    job=LOOP,
    edits=(
        Edit(
            "        dist.broadcast(parameter.data, src=0)\n",
            "        dist.broadcast(parameter.data, src=best_member())\n",
        ),
        Edit(
            "def train() -> None:\n",
            (
                "def best_member() -> int:\n"
                "    scores = {2: [0.2, 0.1, 0.4, 0.3]}.get(RANK, [0.5, 0.1, 0.4, 0.3])  # rank 2 reads an old file\n"
                "    return scores.index(max(scores))\n"
                "\n"
                "\n"
                "def train() -> None:\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.METADATA_MISMATCH,),
        suspects=((2,), ()),
        action=(Action.FIX_CODE, Action.INVESTIGATE),
        story="Rank 2 sends its own weights, the others wait for those of rank 0.",
    ),
)
