"""The first rank evaluates once more when its own loss looks promising, and evaluating reduces.

As in lightning-6410 and openclip-1121: what only the main process does contains a collective.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import DDP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="extra-evaluation",
    title="rank 0 evaluates once more when its own loss is low",
    job=DDP,
    edits=(
        Edit(
            "        if stale >= PATIENCE:\n",
            (
                "        if RANK == 0 and loss.item() < 0.6:\n"
                '            log.info("promising: error %.4f", evaluate(model, held_out))\n'
                "        if stale >= PATIENCE:\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.DIVERGENT_PATH,),
        suspects=((0,),),
        action=(Action.FIX_CODE,),
        story="As soon as rank 0's loss is under 0.6 it reduces two numbers in evaluate() while the others reduce the gradients of the next step.",
    ),
)
