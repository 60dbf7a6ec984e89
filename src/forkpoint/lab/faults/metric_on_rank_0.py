"""The metric is computed for the log of rank 0 only, and computing it gathers.

torchmetrics-938 and lightning-16541.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import LOOP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="metric-on-rank-0",
    title="a metric that gathers is computed on rank 0 only",
    job=LOOP,
    edits=(
        Edit(
            "        if step % REPORT_EVERY == REPORT_EVERY - 1:\n",
            "        if step % REPORT_EVERY == REPORT_EVERY - 1 and RANK == 0:\n",
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.DIVERGENT_PATH,),
        suspects=((0,),),
        action=(Action.FIX_CODE,),
        story="After step 4 rank 0 gathers the losses; the others count the rows of step 5.",
    ),
)
