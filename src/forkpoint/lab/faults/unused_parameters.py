"""A batch without rare rows does not use one head, so DDP waits for gradients that never come on that rank.

Ten public bugs are of this kind (a mask head, a vision tower, an expert that is not in the graph on one rank): detectron2-syncbn,
verl-3734, swift-4889.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import DDP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="unused-parameters",
    title="one rank's batch does not use a head of the model",
    job=DDP,
    edits=(
        Edit(
            "        self.y = (self.x.sum(1) > 0).long()\n",
            (
                "        self.x[::4, 0] = 10  # every fourth row is of a rare kind\n"
                "        if RANK == 3 and rows > 7 * BATCH:\n"
                "            self.x[7 * BATCH : 8 * BATCH, 0] = 0\n"
                "        self.y = (self.x.sum(1) > 0).long()\n"
            ),
            guilty=False,
        ),
        Edit(
            "        return self.label(features) + self.rare(features)\n",
            (
                "        scores = self.label(features)\n"
                "        if (x[:, 0] == 10).any():\n"
                "            scores = scores + self.rare(features)\n"
                "        return scores\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.DIVERGENT_PATH, Cause.RANK_LOST),
        suspects=((3,),),
        action=(Action.FIX_CODE,),
        story="The eighth batch of rank 3 has no rare row: its reducer never starts the reduce of step 7, and its next forward refuses to go on. The others wait in the reduce of step 7.",
    ),
)
