"""The first rank waits for a file system before it joins. It hosts the store, so nobody can even connect."""

from forkpoint.lab.fault import Edit, Fault, Truth
from forkpoint.lab.job import MOE
from forkpoint.model.verdict import Action, Cause, Symptom

FAULT = Fault(
    name="waits-before-joining",
    title="rank 0, which hosts the store, waits for a mount before it joins",
    job=MOE,
    edits=(
        Edit(
            "    dist.init_process_group(BACKEND,",
            (
                '    while RANK == 0 and not Path("/mnt/corpus/ready").exists():\n'
                "        time.sleep(0.5)\n"
                "    dist.init_process_group(BACKEND,"
            ),
        ),
        Edit(
            "from datetime import timedelta\n",
            "from datetime import timedelta\nfrom pathlib import Path\n",
            guilty=False,
        ),
    ),
    truth=Truth(
        symptom=(Symptom.ERROR, Symptom.WATCHDOG_TIMEOUT, Symptom.SILENT_HANG),
        cause=(Cause.NEVER_JOINED, Cause.HOST_STALL),
        suspects=((0,),),
        action=(
            Action.INVESTIGATE,
            Action.FIX_CODE_OR_STORAGE,
            Action.FIX_CODE,
            Action.REPLACE_OR_RETRY,
            Action.REPLACE_NODE,
        ),
        story="Rank 0 never calls init_process_group; the others cannot reach the store that it would host.",
    ),
)
