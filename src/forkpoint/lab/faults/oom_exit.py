"""A batch is too large for the memory of one rank, and nothing catches it: the rank leaves with a traceback."""

from forkpoint.lab.fault import Edit, Fault, Truth
from forkpoint.lab.job import DDP
from forkpoint.model.verdict import Action, Cause, Symptom

FAULT = Fault(
    name="oom-exit",
    title="out of memory on the last rank, not caught",
    job=DDP,
    edits=(
        Edit(
            "        loss = cross_entropy(model(x), y)\n",
            (
                "        if RANK == 3 and step == 12:  # the longest document\n"
                "            x = x.repeat(1 << 43, 1)\n"
                "        loss = cross_entropy(model(x), y)\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=(Symptom.ERROR, Symptom.WATCHDOG_TIMEOUT, Symptom.SILENT_HANG),
        cause=(Cause.RANK_LOST, Cause.DIVERGENT_PATH),
        suspects=((3,),),
        action=(Action.FIX_CODE, Action.REPLACE_OR_RETRY),
        story="Rank 3 cannot allocate the batch of step 12, raises and exits with 1.",
    ),
)
