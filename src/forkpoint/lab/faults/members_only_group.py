"""A group is made by its members only, although new_group is for everybody.

sglang-15805: each rank calls new_group with its own list.
"""

from forkpoint.lab.fault import Edit, Fault, Truth
from forkpoint.lab.job import LOOP
from forkpoint.model.verdict import Action, Cause, Symptom

FAULT = Fault(
    name="members-only-group",
    title="new_group is called by the members only",
    job=LOOP,
    edits=(
        Edit(
            "    everybody = list(range(WORLD))\n",
            "    everybody = list(range(WORLD))\n    if RANK in {0, 1}:\n        dist.new_group([0, 1])\n",
        ),
    ),
    truth=Truth(
        symptom=(Symptom.ERROR, Symptom.WATCHDOG_TIMEOUT, Symptom.SILENT_HANG),
        cause=(Cause.NEVER_JOINED, Cause.DIVERGENT_PATH),
        suspects=((), (0, 1)),
        action=(Action.FIX_CODE, Action.INVESTIGATE),
        story="Ranks 0 and 1 make a group of their own, ranks 2 and 3 already make the next: under one name two groups of other members come together.",
    ),
)
