"""An exception between two collectives is caught and forgotten, and the rank goes on with its next batch.

8 of 118 public bugs: automodel-3261, fairseq-oom.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import LOOP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="swallowed-exception",
    title="an exception between two collectives is swallowed",
    job=LOOP,
    edits=(
        Edit(
            "        rows = add_up(len(x), counts)\n        reduce_gradients(model)\n",
            (
                "        rows = add_up(len(x), counts)\n"
                "        try:\n"
                "            check_batch(x, step)\n"
                "        except ValueError:\n"
                "            continue\n"
                "        reduce_gradients(model)\n"
            ),
        ),
        Edit(
            "def train() -> None:\n",
            (
                "def check_batch(x: Tensor, step: int) -> None:\n"
                "    if RANK == 2 and step == 11:\n"
                '        raise ValueError(f"{len(x)} rows, none with a label")\n'
                "\n"
                "\n"
                "def train() -> None:\n"
            ),
            guilty=False,
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.DIVERGENT_PATH,),
        suspects=((2,),),
        action=(Action.FIX_CODE,),
        story="In step 11 rank 2 counts its rows and leaves the step; it counts the rows of step 12 while the others reduce gradients.",
    ),
)
