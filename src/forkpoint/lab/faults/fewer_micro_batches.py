"""The middle stage passes on one micro-batch less than it gets.

Gloo's recorder does not see send and recv: there only stacks show it, so not to decide is an answer, too.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import PIPELINE
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="fewer-micro-batches",
    title="the middle stage passes one micro-batch less",
    job=PIPELINE,
    edits=(
        Edit("    for index in range(MICRO_BATCHES):\n", "    for index in range(micro_batches_of(step)):\n"),
        Edit(
            "def receive() -> Tensor:\n",
            (
                "def micro_batches_of(step: int) -> int:\n"
                "    short_of_memory = RANK == 1 and step == 6\n"
                "    return MICRO_BATCHES - 1 if short_of_memory else MICRO_BATCHES\n"
                "\n"
                "\n"
                "def receive() -> Tensor:\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.DIVERGENT_PATH,),
        suspects=((1,), ()),
        action=(Action.FIX_CODE,),
        story="In step 6 stage 1 turns to its gradients after two micro-batches while stage 2 waits for the third.",
    ),
    truth_on={
        "gloo": Truth(
            symptom=HANGS,
            cause=(Cause.DIVERGENT_PATH, Cause.INCONCLUSIVE),
            suspects=((1,), ()),
            action=(Action.FIX_CODE, Action.INVESTIGATE),
            story="In step 6 stage 1 turns to its gradients after two micro-batches while stage 2 waits for the third.",
        )
    },
)
