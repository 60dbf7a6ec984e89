"""One rank prepares its rows for longer than the timeout, and then goes on as if nothing had happened.

Nothing is wrong with the order: 3 of 118 public bugs are only this, a rank that is late.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import DDP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="slow-rank",
    title="one rank reads its next file longer than the timeout lasts, and arrives",
    job=DDP,
    edits=(
        Edit(
            "    def batch(self, step: int) -> tuple[Tensor, Tensor]:\n",
            (
                "    def read_next_file(self) -> None:\n"
                '        """From a disk that is slow today: three seconds more than the others wait."""\n'
                '        log.info("reads the next file")\n'
                '        for _ in range(int(os.environ["PG_TIMEOUT"]) + 3):\n'
                "            time.sleep(1)\n"
                '        log.info("has the next file")\n'
                "\n"
                "    def batch(self, step: int) -> tuple[Tensor, Tensor]:\n"
                "        if RANK == 2 and step == 11:\n"
                "            self.read_next_file()\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.STRAGGLER, Cause.HOST_STALL),
        suspects=((2,),),
        action=(Action.RAISE_TIMEOUT, Action.FIX_CODE, Action.FIX_CODE_OR_STORAGE),
        story="Rank 2 reads for three seconds longer than the timeout before step 11. When it comes to the reduce the others have given up.",
    ),
)
