"""Gradients are sent as half floats by the rank whose gradients are small.

nemo-7927: the receiver allocates another type than the sender has.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import LOOP
from forkpoint.model.verdict import Action, Cause, Symptom

FAULT = Fault(
    name="dtype",
    title="one rank reduces its gradients as float16",
    job=LOOP,
    edits=(
        Edit(
            "        dist.all_reduce(parameter.grad)\n        parameter.grad /= WORLD\n",
            (
                '        sent = parameter.grad.half() if RANK == 2 and add_ups["n"] > 20 else parameter.grad\n'
                "        dist.all_reduce(sent)\n"
                "        parameter.grad.copy_(sent / WORLD)\n"
            ),
        ),
        Edit(
            'log = logging.getLogger("train")\n',
            'log = logging.getLogger("train")\nadd_ups = {"n": 0}\n',
            guilty=False,
        ),
        Edit(
            "    total = torch.tensor([value], device=DEVICE)\n",
            '    add_ups["n"] += 1\n    total = torch.tensor([value], device=DEVICE)\n',
            guilty=False,
        ),
    ),
    truth=Truth(
        symptom=(*HANGS, Symptom.NO_HANG),
        cause=(Cause.METADATA_MISMATCH,),
        suspects=((2,),),
        action=(Action.FIX_CODE,),
        story="From step 10 on rank 2 reduces float16 where the others reduce float32.",
    ),
)
