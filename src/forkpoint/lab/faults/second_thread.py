"""The loader thread reports how full its queue is with a collective on the group that the loop uses.

Which of the two threads comes first differs by rank.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import LOOP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="second-thread",
    title="a second thread issues collectives on the same group",
    job=LOOP,
    edits=(
        Edit(
            "            self.ready.put(self.prepare(index))\n",
            (
                "            self.ready.put(self.prepare(index))\n"
                "            if index % 4 == 3:\n"
                "                waiting = torch.tensor([float(self.ready.qsize())], device=DEVICE)\n"
                "                time.sleep(0.02 * RANK)  # disks differ\n"
                "                dist.all_reduce(waiting)\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.ORDER_INVERSION, Cause.DIVERGENT_PATH, Cause.METADATA_MISMATCH),
        suspects=((),),
        action=(Action.FIX_CODE,),
        story="The thread's reduce of one number and the loop's reduces of gradients go to the default group in an order that differs by rank.",
    ),
)
