"""The first stage waits for a report that the last stage does not send.

Gloo's recorder does not see send and recv: there only stacks show it, so not to decide is an answer, too.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import PIPELINE
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="unmatched-recv",
    title="the first stage waits for a message that nobody sends",
    job=PIPELINE,
    edits=(
        Edit(
            '        log.info("step %d done", step)\n',
            (
                '        log.info("step %d done", step)\n'
                "        if FIRST and step == 7:\n"
                "            wait_for_report()\n"
            ),
        ),
        Edit(
            "def train() -> None:\n",
            (
                "def wait_for_report() -> None:\n"
                "    report = torch.empty(4, device=DEVICE)\n"
                "    dist.recv(report, src=WORLD - 1)\n"
                '    log.info("report %s", report.tolist())\n'
                "\n"
                "\n"
                "def train() -> None:\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.DIVERGENT_PATH,),
        suspects=((0,), ()),
        action=(Action.FIX_CODE,),
        story="After step 7 stage 0 waits for the last stage, which waits for the second, which waits for the first.",
    ),
    truth_on={
        "gloo": Truth(
            symptom=HANGS,
            cause=(Cause.DIVERGENT_PATH, Cause.INCONCLUSIVE),
            suspects=((0,), ()),
            action=(Action.FIX_CODE, Action.INVESTIGATE),
            story="After step 7 stage 0 waits for the last stage, which waits for the second, which waits for the first.",
        )
    },
)
