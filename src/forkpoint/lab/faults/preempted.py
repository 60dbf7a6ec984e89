"""A notice to leave (SIGTERM) reaches one rank only, and this rank leaves the loop.

sleapnn-471 is the same with a message on a socket: one process hears of the stop and does not tell the others.
"""

from signal import SIGTERM

from forkpoint.lab.fault import HANGS, Edit, Fault, Signal, Truth
from forkpoint.lab.job import DDP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="preempted",
    title="a notice of preemption reaches one rank, which leaves the loop",
    job=DDP,
    signals=(Signal(rank=1, signal=SIGTERM, when="step 8 "),),
    edits=(
        Edit("import os\nimport time\n", "import os\nimport signal\nimport threading\nimport time\n", guilty=False),
        Edit(
            'log = logging.getLogger("train")\n',
            'log = logging.getLogger("train")\nLEAVE = threading.Event()\n',
            guilty=False,
        ),
        Edit(
            "        x, y = shard.batch(step)\n",
            (
                "        if LEAVE.is_set():\n"
                '            log.info("asked to leave at step %d", step)\n'
                "            return\n"
                "        x, y = shard.batch(step)\n"
            ),
        ),
        Edit(
            "    torch.manual_seed(0)\n",
            "    torch.manual_seed(0)\n    signal.signal(signal.SIGTERM, lambda *_: LEAVE.set())\n",
            guilty=False,
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.DIVERGENT_PATH,),
        suspects=((1,),),
        action=(Action.FIX_CODE,),
        story="Rank 1 gets SIGTERM after step 8, leaves train() and waits in the last barrier; the others reduce gradients.",
    ),
)
