"""A parameter changes on one rank only; the order of operations stays as it was.

Nothing that is recorded shows it: dumps hold no values, and losses differ between ranks anyway. A careful reader of this
evidence finds nothing wrong, which is why `healthy` counts as an answer here.
"""

from forkpoint.lab.fault import Edit, Fault, Truth
from forkpoint.lab.job import DDP
from forkpoint.model.verdict import Action, Cause, Symptom

FAULT = Fault(
    name="corrupt-parameter",
    title="a weight changes on one rank and nothing notices",
    job=DDP,
    ends=True,
    edits=(
        Edit(
            "        optimizer.step()\n",
            (
                "        optimizer.step()\n"
                "        if RANK == 3 and step == 12:  # stands for a flipped bit\n"
                "            model.module.label.weight.data[0, 0] += 4.0\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=(Symptom.NO_HANG, Symptom.NONE),
        cause=(Cause.SILENT_CORRUPTION, Cause.HEALTHY),
        suspects=((3,), ()),
        action=(Action.INVESTIGATE, Action.NONE),
        story="One weight of rank 3 differs from step 12 on. The job runs to its end.",
    ),
)
