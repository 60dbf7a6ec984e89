"""A rank that cannot read its tokens counts the failure with an all_reduce in the handler, which only it enters.

automodel-2468 and fairseq-oom: an exception that is handled by one rank alone.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import MOE
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="collective-in-except",
    title="a failure is counted by an all_reduce in the except branch",
    job=MOE,
    edits=(
        Edit(
            "        x = tokens_of(step)\n",
            (
                "        try:\n"
                "            x = checked(tokens_of(step), step)\n"
                "        except ValueError:\n"
                "            failures = torch.ones(1, device=DEVICE)\n"
                "            dist.all_reduce(failures)\n"
                '            log.warning("step %d: unreadable on %d ranks", step, failures.item())\n'
                "            continue\n"
            ),
        ),
        Edit(
            "def train() -> None:\n",
            (
                "def checked(x: Tensor, step: int) -> Tensor:\n"
                "    if RANK == 2 and step == 8:\n"
                '        raise ValueError("tokens are cut off")\n'
                "    return x\n"
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
        story="In step 8 rank 2 reduces one number in its handler; the others exchange counts.",
    ),
)
