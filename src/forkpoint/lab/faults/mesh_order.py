"""Two ranks that overflow clip first and average afterwards: the same calls on `tp` and `dp`, in the other order.

torchrec-4149: two groups, an order that differs by rank, and a circle of ranks that wait.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import MESH
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="mesh-order",
    title="two ranks use tp and dp in the other order, and all four wait in a circle",
    job=MESH,
    edits=(
        Edit(
            "        average(model, dp)\n        norm = square_norm(model, tp)\n",
            (
                "        if step == 9 and RANK in (0, 3):  # their rows overflow: clip before it spreads\n"
                "            norm = square_norm(model, tp)\n"
                "            average(model, dp)\n"
                "        else:\n"
                "            average(model, dp)\n"
                "            norm = square_norm(model, tp)\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.ORDER_INVERSION,),
        suspects=((), (0, 3)),
        action=(Action.FIX_CODE,),
        story="In step 9 ranks 0 and 3 wait in their tp groups and ranks 1 and 2 in their dp groups; each waits for one that waits for another. Two against two: the order alone does not say who is wrong.",
    ),
)
