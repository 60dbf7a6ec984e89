"""The gradients of the router are reduced in the order of a set of names, which differs by process.

apex-18, verl-6405, nvalchemi-143: one collective per key of a set or an unordered dict.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import MOE
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="set-order",
    title="gradients are reduced in the order of a set",
    job=MOE,
    edits=(
        Edit(
            (
                "    for name, parameter in sorted(model.router.named_parameters()):\n"
                "        assert parameter.grad is not None, name\n"
            ),
            (
                "    parameters = dict(model.router.named_parameters())\n"
                "    for name in set(parameters):\n"
                "        parameter = parameters[name]\n"
                "        assert parameter.grad is not None\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.ORDER_INVERSION, Cause.METADATA_MISMATCH),
        suspects=((), (2,)),
        action=(Action.FIX_CODE,),
        story="With its hash seed rank 2 reduces the weight first, the others the bias. No rank is wrong: the order of a set is nobody's.",
    ),
)
