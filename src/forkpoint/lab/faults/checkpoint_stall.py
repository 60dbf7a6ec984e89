"""Rank 0 waits for the object store to confirm its checkpoint; the store does not answer."""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import DDP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="checkpoint-stall",
    title="rank 0 waits for the store that takes its checkpoint",
    job=DDP,
    edits=(
        Edit("import os\nimport time\n", "import os\nimport socket\nimport time\n", guilty=False),
        Edit(
            'log = logging.getLogger("train")\n',
            'log = logging.getLogger("train")\nSTORE, FAR_END = socket.socketpair()\n',
            guilty=False,
        ),
        Edit(
            '        log.info("saved step %d", step)\n',
            '        upload(step)\n        log.info("saved step %d", step)\n',
        ),
        Edit(
            "def save(model: DistributedDataParallel, step: int) -> None:\n",
            (
                "def upload(step: int) -> None:\n"
                '    STORE.sendall(Path(f"step-{step}.pt").read_bytes()[:1000])\n'
                '    assert STORE.recv(2) == b"ok"\n'
                "\n"
                "\n"
                "def save(model: DistributedDataParallel, step: int) -> None:\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.HOST_STALL,),
        suspects=((0,),),
        action=(Action.FIX_CODE_OR_STORAGE, Action.FIX_CODE, Action.INVESTIGATE),
        story="After step 9 rank 0 sends the checkpoint and waits for an answer for ever; the others wait in the barrier behind it.",
    ),
)
