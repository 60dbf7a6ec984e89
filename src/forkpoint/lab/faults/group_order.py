"""One rank whose loss jumps uses its two groups in the other order.

torchrec-4149, with one rank against three.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import LOOP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="group-order",
    title="one rank uses two groups in the other order",
    job=LOOP,
    edits=(
        Edit(
            (
                "        rows = add_up(len(x), counts)\n"
                "        reduce_gradients(model)\n"
                "        norm = add_up(loss.item() ** 2, norms)\n"
            ),
            (
                "        if RANK == 3 and step == 9:  # the loss jumped: the norm first\n"
                "            norm = add_up(loss.item() ** 2, norms)\n"
                "            reduce_gradients(model)\n"
                "            rows = add_up(len(x), counts)\n"
                "        else:\n"
                "            rows = add_up(len(x), counts)\n"
                "            reduce_gradients(model)\n"
                "            norm = add_up(loss.item() ** 2, norms)\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.ORDER_INVERSION, Cause.DIVERGENT_PATH),
        suspects=((3,), ()),
        action=(Action.FIX_CODE,),
        story="In step 9 rank 3 waits in the group of the norms, the others in that of the counts.",
    ),
)
