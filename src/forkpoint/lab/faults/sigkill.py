"""The last rank is killed from outside, as the out-of-memory killer of the kernel does: no message, no dump."""

from signal import SIGKILL

from forkpoint.lab.fault import Fault, Signal, Truth
from forkpoint.lab.job import FSDP
from forkpoint.model.verdict import Action, Cause, Symptom

FAULT = Fault(
    name="sigkill",
    title="the last rank is killed (SIGKILL)",
    job=FSDP,
    signals=(Signal(rank=3, signal=SIGKILL, when="step 5 "),),
    truth=Truth(
        symptom=(Symptom.ERROR, Symptom.WATCHDOG_TIMEOUT, Symptom.SILENT_HANG),
        cause=(Cause.RANK_LOST,),
        suspects=((3,),),
        action=(Action.REPLACE_OR_RETRY, Action.INVESTIGATE, Action.REPLACE_NODE),
        story="Rank 3 is killed after step 5. It writes nothing any more.",
    ),
)
