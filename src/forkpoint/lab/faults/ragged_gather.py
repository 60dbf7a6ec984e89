"""The losses of a short last batch are gathered with fewer elements on one rank.

lightning-12630, trl-3069, bergson-227: gathers of tensors whose length is local. NCCL completes it with wrong data, gloo
refuses it.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import LOOP
from forkpoint.model.verdict import Action, Cause, Symptom

FAULT = Fault(
    name="ragged-gather",
    title="all_gather of fewer elements on one rank",
    job=LOOP,
    ends=True,
    edits=(
        Edit(
            "        mine = torch.tensor([sum(self.losses) / len(self.losses)], device=DEVICE)\n",
            "        mine = torch.tensor(self.losses, device=DEVICE)\n",
        ),
        Edit(
            "        metrics.losses.append(loss.item())\n",
            (
                "        if not (RANK == 2 and step == 7):  # a batch without labels\n"
                "            metrics.losses.append(loss.item())\n"
            ),
            guilty=False,
        ),
        Edit(
            "        return [round(value.item(), 4) for value in everyone]\n",
            "        return [round(value.mean().item(), 4) for value in everyone]\n",
            guilty=False,
        ),
    ),
    truth=Truth(
        symptom=(Symptom.NO_HANG, *HANGS),
        cause=(Cause.METADATA_MISMATCH,),
        suspects=((2,), ()),
        action=(Action.FIX_CODE,),
        story="In the second report rank 2 gathers four losses, the others five. NCCL completes it and mixes them up.",
    ),
    truth_on={
        "gloo": Truth(
            symptom=HANGS,
            cause=(Cause.METADATA_MISMATCH,),
            suspects=((2,), ()),
            action=(Action.FIX_CODE,),
            story="In the second report rank 2 gathers four losses, the others five.",
        )
    },
)
