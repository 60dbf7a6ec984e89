"""One process is stopped from outside (SIGSTOP) and never continued, as a debugger or a frozen container does."""

from signal import SIGSTOP

from forkpoint.lab.fault import HANGS, Fault, Signal, Truth
from forkpoint.lab.job import MESH
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="sigstop",
    title="one rank is stopped (SIGSTOP)",
    job=MESH,
    signals=(Signal(rank=1, signal=SIGSTOP, when="step 8 "),),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.HOST_STALL, Cause.RANK_LOST),
        suspects=((1,),),
        action=(
            Action.INVESTIGATE,
            Action.FIX_CODE,
            Action.REPLACE_NODE,
            Action.REPLACE_OR_RETRY,
            Action.FIX_CODE_OR_STORAGE,
        ),
        story="Rank 1 is stopped after step 8: it issues nothing more, answers no signal and writes no dump. Its partners in tp and dp wait for it, and the last rank waits for them.",
    ),
)
