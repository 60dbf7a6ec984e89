"""Every rank leaves the loop when its own clock says so.

speechbrain-1167: what is collective is due by time.time() of each process.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import LOOP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="wall-clock",
    title="every rank stops by its own clock",
    job=LOOP,
    edits=(
        Edit(
            "    for step, x in enumerate(loader):\n",
            (
                "    began = time.monotonic() - (1.5 if RANK == 1 else 0)  # that node is ahead of the others\n"
                "    for step, x in enumerate(loader):\n"
                "        if time.monotonic() - began > 2.5:\n"
                '            log.info("the time is over at step %d", step)\n'
                "            break\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.DIVERGENT_PATH,),
        suspects=((1,),),
        action=(Action.FIX_CODE,),
        story="The clock of rank 1 is 1.5 seconds ahead: it leaves the loop for the last barrier while the others count rows.",
    ),
)
