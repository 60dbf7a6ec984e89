"""One rank is never started: the others wait for it at the rendezvous."""

from forkpoint.lab.fault import Fault, Truth
from forkpoint.lab.job import DDP
from forkpoint.model.verdict import Action, Cause, Symptom

FAULT = Fault(
    name="missing-rank",
    title="one rank is never started",
    job=DDP,
    absent=(2,),
    truth=Truth(
        symptom=(Symptom.ERROR, Symptom.WATCHDOG_TIMEOUT, Symptom.SILENT_HANG),
        cause=(Cause.NEVER_JOINED,),
        suspects=((2,),),
        action=(Action.INVESTIGATE, Action.REPLACE_OR_RETRY, Action.REPLACE_NODE, Action.FIX_CODE),
        story="The process of rank 2 does not exist. The others time out in init_process_group.",
    ),
)
